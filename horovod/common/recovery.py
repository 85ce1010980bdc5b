"""What a reset of elastic training was about, and how long each phase took: told in the log, in counters and
in the timeline, all from one record.

A record begins where the world is left, and ends where training goes on. Where another rank is lost before,
it ends there, and the next begins: each reset has one.
"""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import dataclass, field
from typing import Any

from horovod.common import jobs
from horovod.common.agent_channel import agent_channel
from horovod.common.basics import basics

__all__ = ["HOST_CHANGE", "LOSS", "Recoveries", "Recovery"]

LOSS, HOST_CHANGE = "LOSS", "HOST_CHANGE"  # as the timeline calls them
PHASES = {"left": "LEAVE", "restored": "RESTORE", "met": "MEET", "synchronised": "SYNCHRONISE"}
_log = logging.getLogger("horovod")


@dataclass
class Recovery:
    """One reset.

    Attributes:
        what: LOSS or HOST_CHANGE.
        why: what is believed, as the error said it.
        lost: the ranks that the error says are lost, of the world that was left.
        rank, size: of this process in the world that it left; -1 and 0 where it was in none.
        marks: what was done, and when: of time.monotonic(), in seconds; the first is the beginning.
        is_over: training went on, and no rank was lost before.
    """

    what: str
    why: str
    lost: tuple[int, ...]
    rank: int
    size: int
    marks: list[tuple[str, float]] = field(default_factory=list)
    is_over: bool = False

    @property
    def seconds(self) -> float:
        """From the beginning to what was done last."""
        return self.marks[-1][1] - self.marks[0][1]

    def phases(self) -> list[tuple[str, float, float]]:
        """What was done, when that began, and how many seconds it took."""
        steps = zip(self.marks[1:], self.marks, strict=False)
        return [(what, before, now - before) for (what, now), (_, before) in steps]

    def described(self, of_now: dict[str, Any]) -> dict[str, Any]:
        """For a timeline: who is believed to be lost, by the ranks of the world that was left, and why."""
        took = {what: round(seconds, 6) for what, _, seconds in self.phases()}
        found = {"why": self.why, "rank_before": self.rank, "size_before": self.size, "seconds": took}
        lost = {"lost_ranks": list(self.lost)} if self.what == LOSS else {}
        return {**lost, **found, **(of_now if self.is_over else {"interrupted": True})}


class Recoveries:
    """The resets of this process: two lines of the log for each, counters of the job, the timeline."""

    def __init__(self) -> None:
        self._untold: list[Recovery] = []  # the last may be going on; those before it another loss has ended

    def begin(self, what: str, why: str, lost: tuple[int, ...] = ()) -> None:
        """This process leaves its world, as a rank was lost or hosts have changed."""
        job = jobs.current()
        is_in = basics.is_initialized()
        who = f"rank {basics.rank()} of {basics.size()}" if is_in else "this process"
        does = "goes back to its last commit, as this failed" if what == LOSS else "goes on in another world"
        _log.warning("horovod: %s %s%s %s", who, does, ":" if what == LOSS else ", as", why)
        place = (basics.rank(), basics.size()) if is_in else (-1, 0)
        self._untold.append(Recovery(what, why, lost, *place, [("", time.monotonic())]))
        job.losses += what == LOSS

    def note(self, phase: str) -> None:
        """A phase has ended: "left", "restored", "met" or "synchronised"."""
        self._untold[-1].marks.append((phase, time.monotonic()))

    def end(self, commit: int | None) -> None:
        """Training goes on, from that commit if there is one."""
        self.note("synchronised")
        last = self._untold[-1]
        last.is_over = True
        took = ", ".join(f"{what} in {seconds:.2f} s" for what, _, seconds in last.phases())
        is_in = basics.is_initialized()
        who = f"rank {basics.rank()} of {basics.size()}" if is_in else "this process"
        of = "" if commit is None else f", commit {commit}"
        _log.warning("horovod: goes on as %s%s, after %.2f s: %s.", who, of, last.seconds, took)
        job = jobs.current()
        job.recovery_microseconds += round(1e6 * sum(each.seconds for each in self._untold))
        if is_in:
            _draw(self._untold, {"commit": commit, "generation": _generation()})
        self._untold.clear()


def _generation() -> int:
    """Of the world that this process is in, as its launcher counts; else by the resets of this process."""
    channel = agent_channel(os.environ)
    return jobs.current().resets + 1 if channel is None else channel.generation


def _draw(recoveries: list[Recovery], of_now: dict[str, Any]) -> None:
    """Into the timeline, if this rank writes one."""
    engine = basics.member().engine
    now = {**of_now, "rank": basics.rank(), "size": basics.size()}
    for each in recoveries:
        arguments = json.dumps(each.described(now))
        engine.note_span(each.what, each.marks[0][1], each.seconds, arguments)
        for what, begin, seconds in each.phases():
            engine.note_span(PHASES[what], begin, seconds)
