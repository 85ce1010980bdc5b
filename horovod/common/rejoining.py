"""The steps of elastic training between two worlds.

A process leaves a job that has failed or changed, joins the next one, and agrees with the ranks there on the
state from which all continue. An engine that has failed stops by force and waits for no rank. Process sets
that scripts have added are noted before, and ``agree`` makes them again in the new world if the same ranks
exist.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from horovod.common import errors, jobs
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.basics import basics, go_on_with_timeline
from horovod.common.commits import Agreement, Standing, agreed
from horovod.common.errors import InAnotherFunction

__all__ = ["AGENT", "InAnotherFunction", "agree", "leave", "rebuild", "rejoin"]

_log = logging.getLogger("horovod")


def leave() -> None:
    """Stop this rank's engine, also if other ranks are still in the job: pending operations fail. Idempotent.

    rank(), size() and the like still answer, until ``rejoin``.
    """
    job = jobs.current()
    if job.member is not None:
        job.member.engine.shutdown()
        if job.timeline is not None:
            job.member.engine.stop_timeline()  # the next world's rank 0 continues the file


def rejoin() -> None:
    """Leave, and join the next world.

    Raises:
        ValueError: ranks have met and disagree, or they have not met in several attempts. Without a launcher
            that forms a new world, at the first failure.
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

    Raises:
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
