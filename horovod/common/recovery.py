"""The record of a reset of elastic training: its cause, and the time of each phase. The log, the counters
and the timeline are made from it.

A record begins when the world is left, and ends when training goes on. If another rank is lost before that,
the record ends there and the next begins: each reset has one. A limit on resets tells ranks that disagree
again and again from ranks that were lost.
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
from horovod.common.exceptions import HorovodInternalError, Stalled, follows_others, lost_ranks

__all__ = ["HOST_CHANGE", "LOSS", "MOST_REFUSALS", "Patience", "Recoveries", "Recovery", "is_scripts_own"]

LOSS, HOST_CHANGE = "LOSS", "HOST_CHANGE"  # as the timeline calls them
PHASES = {"left": "LEAVE", "restored": "RESTORE", "met": "MEET", "synchronised": "SYNCHRONISE"}
MOST_REFUSALS = 3  # in a row, of which none has come any further: then it is the script
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
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
        """A phase's name, begin, and seconds."""
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
        does = "goes back to its last commit, as this failed" if what == LOSS else "goes on in another world"
        _log.warning("horovod: %s %s%s %s", _who(), does, ":" if what == LOSS else ", as", why)
        place = (basics.rank(), basics.size()) if basics.is_initialized() else (-1, 0)
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
        of = "" if commit is None else f", commit {commit}"
        _log.warning("horovod: goes on as %s%s, after %.2f s: %s.", _who(), of, last.seconds, took)
        job = jobs.current()
        job.recovery_microseconds += round(1e6 * sum(each.seconds for each in self._untold))
        if basics.is_initialized():
            _draw(self._untold, {"commit": commit, "generation": _generation()})
        self._untold.clear()


def _who() -> str:
    return f"rank {basics.rank()} of {basics.size()}" if basics.is_initialized() else "this process"


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


class Patience:
    """How often the function of elastic training was refused something, and came no further. That a rank does
    not ask for what others wait for is one more way to disagree.

    Each attempt begins at a commit, and may make that one again on its way to what is refused. So a replay is
    told by how many commits it makes: none or that one, or as many as the attempt before, give or take one
    where the clock says when to commit. What is refused may differ, as where shapes are random.

    All ranks hear of a refusal, at the same commit, and so decide alike.
    """

    def __init__(self) -> None:
        self._count = 0  # of refusals
        self._made = 0  # commits, by the attempt before
        self._begun = 0

    def begin(self, state: Any) -> None:
        """An attempt begins."""
        self._begun = _commits_of(state)

    def is_over(self, error: Exception, state: Any) -> bool:
        """Whether an attempt ends by the third refusal in a row, and made no progress."""
        if lost_ranks(error):
            self._count = 0
            return False
        if follows_others(error) and not isinstance(error, Stalled):
            return False  # one has left, perhaps for the same refusal
        made, before = _commits_of(state) - self._begun, self._made
        is_replay = made <= 1 or abs(made - before) <= 1
        self._count = self._count + 1 if is_replay else 1
        self._made = made
        return self._count >= MOST_REFUSALS


def is_scripts_own(error: BaseException) -> bool:
    """Whether an error was raised by code of the script, and passes on none of ours."""
    before = error.__cause__ or error.__context__
    if isinstance(before, HorovodInternalError):
        return is_scripts_own(before)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not at.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def _commits_of(state: Any) -> int:
    """How many the function has made; 0 for a state that does not count them."""
    saves = getattr(state, "_saves", 0)
    return saves if type(saves) is int else 0
