"""The steps of elastic training between two worlds, and the record of each such reset.

A process leaves a job that has failed or changed, joins the next one, and agrees with the ranks there on the
state from which all continue. An engine that has failed stops by force and waits for no rank. Process sets
that scripts have added are noted before, and ``agree`` makes them again in the new world if the same ranks
exist.

A record has the cause, and the time of each phase, for the log, the counters and the timeline. It begins when
the world is left, and ends when training continues. If another rank is lost before that, the record ends
there and the next begins: each reset has one. A limit on resets distinguishes ranks that disagree repeatedly
from ranks that were lost.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.common import errors, jobs
from horovod.common.agent_channel import agent_channel
from horovod.common.basics import basics, go_on_with_timeline
from horovod.common.commits import Agreement, Standing, agreed
from horovod.common.exceptions import HorovodInternalError, Stalled, follows_others, lost_ranks

LOSS, HOST_CHANGE = "LOSS", "HOST_CHANGE"  # names in the timeline
PHASES = {"left": "LEAVE", "restored": "RESTORE", "met": "MEET", "synchronised": "SYNCHRONISE"}
MOST_REFUSALS = 3  # in a row without progress: then the script is the cause
_PACKAGE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_log = logging.getLogger("horovod")


def leave() -> None:
    """Stop this rank's engine: pending operations fail. Until ``rejoin`` rank() still answers. Idempotent."""
    job = jobs.current()
    if job.member is not None:
        job.member.engine.shutdown()
        if job.timeline is not None:
            job.member.engine.stop_timeline()  # the next world's rank 0 continues the file


def rejoin() -> None:
    """Leave, and join the next world.

    ValueError: ranks have met and disagree, or they have not met in several attempts (in one, without a
    launcher that forms a new world).
    """
    leave()
    job = jobs.current()
    if job.member is not None and not job.process_sets_left:  # otherwise they have not been made again yet
        job.process_sets_left = job.member.added_process_sets()
    basics.shutdown()
    job.belongings.forget()  # the old transport ends with its engine, before the new one is opened
    job.is_rejoining = True
    try:
        basics.init(process_sets=job.process_sets_given)
    finally:
        job.is_rejoining = False
    job.resets += 1
    go_on_with_timeline(job, job.began)


def agree(held: list[int], is_kept: bool, generation: int = 0) -> Agreement:
    """The conclusion of all ranks of this world from each rank's standing (commits.Standing).

    Collective: once in each world, before anything is synchronised. Without hvd.init() this process is alone.
    InAnotherFunction: this rank runs another function than the others.
    """
    job = jobs.current()
    own = Standing(held, is_kept, [ranks for ranks, _ in job.process_sets_left], generation, job.in_function)
    if not basics.is_initialized():
        return agreed([own])
    texts = job.running().allgathered("elastic.agreement", own.to_bytes())
    conclusion = agreed([Standing.of(rank, text) for rank, text in enumerate(texts)])
    if conclusion.function != job.in_function:
        raise errors.in_another_function(
            rank=basics.rank(),
            function=job.in_function or "no function",
            root=conclusion.root,
            expected=conclusion.function or "none",
        )
    if conclusion.process_sets:
        rebuild(conclusion.process_sets)
    job.follow_process_sets()
    return conclusion


def rebuild(process_sets: Sequence[Sequence[int]]) -> None:
    """Make sets again that scripts had added. Collective, with the same argument on all ranks.

    This process' ProcessSet objects of these sets are registered again. A set with a rank that no longer
    exists stays unregistered, and rank 0 warns about it: operations in it are refused.
    """
    job = jobs.current()
    member = job.running()
    size = member.world.size
    for ranks in process_sets:
        if not member.is_dynamic or ranks[-1] >= size:
            if member.world.rank == 0:
                _log.warning(
                    "horovod: the process set of ranks %s is not made again: the job has %d ranks now. "
                    "Operations in it are refused.",
                    *(list(ranks), size),
                )
            continue
        left = [objects for of, objects in job.process_sets_left if of == list(ranks)]
        member.rebuild_process_set(ranks, [each for objects in left for each in objects])
    job.process_sets_left = []


@dataclass
class Recovery:
    what: str  # LOSS or HOST_CHANGE
    why: str  # the presumed cause, from the error
    lost: tuple[int, ...]  # lost ranks that the error names, numbered as in the world that was left
    rank: int  # of this process in the world that it left; -1 if it was in none
    size: int  # of that world, or 0
    # The phases done, with their ends by time.monotonic(), in seconds; the first is the beginning.
    marks: list[tuple[str, float]] = field(default_factory=list)
    is_over: bool = False  # training continued, and no rank was lost before

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the end of the last phase."""
        return self.marks[-1][1] - self.marks[0][1]

    def phases(self) -> list[tuple[str, float, float]]:
        steps = zip(self.marks[1:], self.marks, strict=False)
        return [(what, before, now - before) for (what, now), (_, before) in steps]

    def described(self, of_now: dict[str, Any]) -> dict[str, Any]:
        """The record for a timeline: the presumed lost ranks, numbered as in the world that was left."""
        took = {what: round(seconds, 6) for what, _, seconds in self.phases()}
        found = {"why": self.why, "rank_before": self.rank, "size_before": self.size, "seconds": took}
        lost = {"lost_ranks": list(self.lost)} if self.what == LOSS else {}
        return {**lost, **found, **(of_now if self.is_over else {"interrupted": True})}


class Recoveries:
    """The resets of this process: two log lines for each, counters of the job, the timeline."""

    def __init__(self) -> None:
        self._untold: list[Recovery] = []  # the last may not be over; another loss has ended the others

    def begin(self, what: str, why: str, lost: tuple[int, ...] = ()) -> None:
        """Begin a reset: this process leaves its world because a rank was lost or hosts have changed."""
        job = jobs.current()
        does = "goes back to its last commit, as this failed" if what == LOSS else "goes on in another world"
        _log.warning("horovod: %s %s%s %s", _who(), does, ":" if what == LOSS else ", as", why)
        place = (basics.rank(), basics.size()) if basics.is_initialized() else (-1, 0)
        self._untold.append(Recovery(what, why, lost, *place, [("", time.monotonic())]))
        job.losses += what == LOSS

    def note(self, phase: str) -> None:
        """Note that a phase has ended: "left", "restored", "met" or "synchronised"."""
        self._untold[-1].marks.append((phase, time.monotonic()))

    def end(self, commit: int | None) -> None:
        """End a reset: training continues, from a commit if there is one."""
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
    """This world's generation by the launcher's count; without a launcher, by this process' resets."""
    channel = agent_channel(os.environ)
    return jobs.current().resets + 1 if channel is None else channel.generation


def _draw(recoveries: list[Recovery], of_now: dict[str, Any]) -> None:
    """Write records into the timeline, if this rank writes one."""
    engine = basics.member().engine
    now = {**of_now, "rank": basics.rank(), "size": basics.size()}
    for each in recoveries:
        arguments = json.dumps(each.described(now))
        engine.note_span(each.what, each.marks[0][1], each.seconds, arguments)
        for what, begin, seconds in each.phases():
            engine.note_span(PHASES[what], begin, seconds)


class Patience:
    """Counts refused operations of the function of elastic training, in a row and without progress.

    A rank that does not request an operation that others wait for counts as a refusal too. Each attempt
    begins at a commit, and may make that commit again before the refusal. So the number of its commits shows
    a replay: none or one, or as many as the attempt before, give or take one if the clock decides when to
    commit. The refused operation may differ, for example if shapes are random.

    All ranks receive a refusal at the same commit, and so decide alike.
    """

    def __init__(self) -> None:
        self._count = 0  # of refusals
        self._made = 0  # commits, by the attempt before
        self._begun = 0

    def begin(self, state: Any) -> None:
        """Begin an attempt."""
        self._begun = commits_of(state)

    def is_over(self, error: Exception, state: Any) -> bool:
        """Whether the attempt ends with the third refusal in a row without progress."""
        if lost_ranks(error):
            self._count = 0
            return False
        if follows_others(error) and not isinstance(error, Stalled):
            return False  # a rank has left, perhaps because of the same refusal
        made, before = commits_of(state) - self._begun, self._made
        is_replay = made <= 1 or abs(made - before) <= 1
        self._count = self._count + 1 if is_replay else 1
        self._made = made
        return self._count >= MOST_REFUSALS


def is_scripts_own(error: BaseException) -> bool:
    """Whether the script's code raised the error, which passes on none of this package."""
    before = error.__cause__ or error.__context__
    if isinstance(before, HorovodInternalError):
        return is_scripts_own(before)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return at is not None and not at.tb_frame.f_code.co_filename.startswith(_PACKAGE)


def commits_of(state: Any) -> int:
    """The number of commits that the function made in this process; 0 if the state does not count them."""
    saves = getattr(state, "_saves", 0)
    return saves - getattr(state, "_saves_before", 0) if type(saves) is int else 0
