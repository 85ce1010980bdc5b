"""The load by other processes: the kernel's clocks minus the time of this process and its descendants."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refused

from horovod.lab import errors, load
from horovod.lab.load import Load, Reading

TICK = 1 / os.sysconf("SC_CLK_TCK")
HEAD = "cpu  9 9 9 9 9 9 9 9 9 9\n"
BUSY = "import time\nwhile time.process_time() < 0.3: pass"


def made(proc: Path, stat: str, processes: dict[int, tuple[int, int, int, int, int]]) -> Path:
    """A /proc. processes: parent, then user and system time of each and of its children that ended."""
    (proc / "self").mkdir(parents=True)
    (proc / "stat").write_text(stat)
    for pid, (parent, *times) in processes.items():
        (proc / str(pid)).mkdir()
        words = [str(pid), "(a) (name)", "S", str(parent), *9 * ["0"], *map(str, times)]
        (proc / str(pid) / "stat").write_text(" ".join(words) + " 20 0 1\n")
    return proc


def test_a_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usable processors only, without idle time and interrupts, but with time taken by a hypervisor."""
    monkeypatch.setattr(load, "_usable", lambda: {0, 2})
    rows = (
        "cpu0 1 2 4 1000 1000 100 100 8 5 5",
        "cpu1 999 999 999 9 9 9 9 999 9 9",
        "cpu2 10 20 40 1 1 1 1 80 0 0",
    )
    me = os.getpid()
    processes = {
        1: (0, 5, 5, 5, 5),
        me: (1, 1, 2, 3, 4),
        me + 1: (me, 10, 20, 30, 40),
        me + 2: (me + 1, 100, 200, 300, 400),
        me + 3: (1, 7, 7, 7, 7),
    }
    found = load.reading(made(tmp_path, HEAD + "\n".join(rows) + "\nintr 5 1\n", processes))
    assert found.busy == pytest.approx(165 * TICK)
    assert found.own == pytest.approx(1110 * TICK)


@pytest.mark.parametrize(
    ("busy", "own", "share"),
    [(0.0, 0.0, 0.0), (4.0, 4.0, 0.0), (20.0, 5.0, 0.75), (4.0, 4.1, 0.0), (30.0, 0.0, 1.0)],
)
def test_the_share_of_others(busy: float, own: float, share: float) -> None:
    first, last = Reading(100.0, 7.0, 3.0), Reading(110.0, 7.0 + busy, 3.0 + own)
    assert load.others(first, last, 2) == pytest.approx(share)


def test_the_work_of_descendants_is_our_own() -> None:
    """Including a grandchild, while it runs and after its end."""
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}], check=True)"
    first = load.reading()
    subprocess.run([sys.executable, "-c", child], check=True)
    last = load.reading()
    assert last.own - first.own >= 0.3
    assert last.busy - first.busy >= last.own - first.own - 4 * TICK * (os.cpu_count() or 1)


def test_the_work_of_a_stranger_is_not() -> None:
    """A stranger is not a descendant of this process, like a daemon."""
    first = load.reading()
    daemon = f"import os, sys\nif os.fork(): sys.exit()\nos.setsid()\n{BUSY}\nos.write(1, b'x')"
    with subprocess.Popen([sys.executable, "-c", daemon], stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        assert started.stdout.read() == b"x"  # both have ended
    last = load.reading()
    assert last.own - first.own < 0.3
    assert last.busy - first.busy >= 0.3 - 2 * TICK


def test_what_disturbs() -> None:
    assert not Load(1.0, 0.05, 1.0).is_disturbing  # load before and after did not slow it
    assert Load(0.0, 0.06, 0.0).is_disturbing


def test_its_file() -> None:
    found = Load(0.0, 0.25, 1.0)
    assert load.from_json(load.to_json(found)) == found
    for text in ("", "[]", '{"before": 0}'):
        with refused(errors.no_load_record):
            load.from_json(text)
    for field, wrong in (("during", "1.5"), ("during", "true"), ("before", '"0"'), ("before", "NaN")):
        with refused(errors.no_share, field=field):
            load.from_json(f'{{"before": 0, "during": 0, "after": 0, "{field}": {wrong}}}')
