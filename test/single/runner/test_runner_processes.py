"""Which processes belong to a process and end with it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import busy
import pytest

from horovod.runner import processes

ENDS_DESCENDANTS = """
import subprocess, sys, time
from horovod.runner.processes import adopt_orphans, children, end_descendants
adopt_orphans()
subprocess.run(["sh", "-c", sys.argv[1]])
print(len(children()), flush=True)
end_descendants(patience=0.2)
print(len(children()), flush=True)
"""
# In a new process, which has no children of earlier tests.
REAPS = """
import subprocess, time
from horovod.runner.processes import children, ended_children
sleeping = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
print(len(ended_children()), flush=True)
for process in sleeping:
    process.kill()
counted, deadline = 0, time.monotonic() + 20
while counted < 2 and time.monotonic() < deadline:
    counted += len(ended_children())
print(counted, len(children()), flush=True)
"""


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_children_are_those_that_run() -> None:
    with sleeping() as one, sleeping() as other:
        assert {one.pid, other.pid} <= set(processes.children())
        one.kill()
        assert one.wait() == -signal.SIGKILL
        found = set(processes.children())
        assert one.pid not in found and other.pid in found


def test_a_signal_for_nobody_is_told() -> None:
    with sleeping() as process:
        assert processes.send(process.pid, 0)
    assert not processes.send(process.pid, signal.SIGTERM)


def test_those_that_ended_are_counted_and_gone() -> None:
    words = [sys.executable, "-c", REAPS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=busy.limit(40), check=True)
    assert done.stdout.split() == ["0", "2", "0"], done


def test_what_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="prctl"):
        processes.process_control(-1, 0)


def test_orphans_are_adopted_and_ended_by_force_if_need_be() -> None:
    for script in ("sleep 60 & sleep 60 &", "(trap '' TERM; sleep 60; sleep 60) & sleep 0.2; sleep 60 &"):
        words = [sys.executable, "-c", ENDS_DESCENDANTS, script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.split() == ["2", "0"], done
