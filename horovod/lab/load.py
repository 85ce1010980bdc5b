"""The load of the processors by other programs before, during and after a run.

The load average includes the run itself. So this module subtracts the time of this process and its
descendants (/proc/<pid>/stat) from all processor time (/proc/stat). Time that a hypervisor lends to other
machines (steal) counts as others' too. On a cluster, only this host is measured.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from horovod.lab import errors

PROC = Path("/proc")
DISTURBED = 0.05  # a run during which others took a larger share of the processors is marked
QUIET_SECONDS = 0.5  # of measurement before and after a run
_TICK = 1 / os.sysconf("SC_CLK_TCK")
# Fields of a line of /proc/stat: user, nice, system, steal. Not interrupts, which the run also causes.
_BUSY = (1, 2, 3, 8)


@dataclass(frozen=True)
class Load:
    """The share of the usable processors' time that others took, from 0 to 1."""

    before: float  # just before the run, while the lab was idle
    during: float
    after: float  # just after it

    @property
    def is_disturbing(self) -> bool:
        return self.during > DISTURBED


@dataclass(frozen=True)
class Reading:
    """Monotonic clocks, in seconds."""

    time: float
    busy: float  # of all usable processors together
    own: float  # by this process and its descendants, ended and reaped ones included


def reading(proc: Path = PROC) -> Reading:
    return Reading(time.monotonic(), _busy(proc), _own(proc))


def others(first: Reading, last: Reading, processors: int | None = None) -> float:
    """The share that others took between two readings."""
    available = (last.time - first.time) * (processors or len(_usable()))
    taken = (last.busy - first.busy) - (last.own - first.own)
    return min(1.0, max(0.0, taken / available)) if available > 0 else 0.0


def while_quiet() -> float:
    """The share that others take now, while the lab is idle."""
    first = reading()
    time.sleep(QUIET_SECONDS)
    return others(first, reading())


def to_json(load: Load) -> str:
    return json.dumps(asdict(load)) + "\n"


def from_json(text: str) -> Load:
    """The load in a text of to_json. ValueError for another text."""
    try:
        values = json.loads(text)
        found = {name: values[name] for name in ("before", "during", "after")}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise errors.no_load_record(why=str(error)) from None
    for name, share in found.items():
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise errors.no_share(field=name, got=share)
    return Load(**found)


def _usable() -> set[int]:
    return os.sched_getaffinity(0)


def _busy(proc: Path) -> float:
    names = {f"cpu{number}" for number in _usable()}
    lines = [line.split() for line in (proc / "stat").read_text().splitlines()]
    return _TICK * sum(int(words[at]) for words in lines if words and words[0] in names for at in _BUSY)


def _own(proc: Path) -> float:
    """The time of this process and its descendants. Each process' times include reaped children's."""
    times: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        pid = int(folder.name)
        children.setdefault(int(words[1]), []).append(pid)
        times[pid] = sum(map(int, words[11:15]))  # utime, stime, and both of the reaped children
    total, waiting = 0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        total += times.get(pid, 0)
        waiting += children.get(pid, [])
    return _TICK * total
