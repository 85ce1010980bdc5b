"""Time limits that grow with the load of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import busy
import pytest

SLEEPS = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


@pytest.mark.parametrize(("load", "times"), [(0.0, 1.0), (3.0, 3.0), (900.0, busy.MOST)])
def test_limits_grow_with_the_load(monkeypatch: pytest.MonkeyPatch, load: float, times: float) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
    assert (busy.times_longer(), busy.patience(2.0)) == (times, 2.0 * times)
    assert abs(busy.limit(10.0) - time.monotonic() - 10.0 * times) < 1


def test_processes_are_waited_for_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """By position and by name; a short timeout, which is meant to expire, does not change."""
    monkeypatch.setattr(busy, "LEAST_SECONDS", 0.3)
    monkeypatch.setattr(busy, "times_longer", lambda: 2.0)
    with subprocess.Popen(SLEEPS, stdout=subprocess.PIPE) as process:
        waits = [
            lambda s: process.wait(s),
            lambda s: process.wait(timeout=s),
            lambda s: process.communicate(None, s),
        ]
        for wait in waits:
            for seconds, expected in ((0.3, 0.6), (0.1, 0.1)):
                began = time.monotonic()
                with pytest.raises(subprocess.TimeoutExpired):
                    wait(seconds)
                assert expected <= time.monotonic() - began < expected + 0.4
        process.kill()
