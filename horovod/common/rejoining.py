"""How a process leaves a job that has failed or changed, joins the next one, and agrees with the ranks there
on what all go on from: what elastic training does between two worlds.

The engine goes by force: once it has failed it waits for nobody. Process sets that scripts have added are
noted before, and made again in the new world by ``agree``, where the same ranks exist.
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
    """Stop this rank's engine, whoever is still in the job: what is pending fails. Harmless when repeated.

    Who and how many ranks are there is answered still, until ``rejoin``.
    """
    job = jobs.current()
    if job.member is not None:
        job.member.engine.shutdown()
        if job.timeline is not None:
            job.member.engine.stop_timeline()  # the next world's rank 0 goes on with the file


def rejoin() -> None:
    """Leave, and join the world that comes next.

    Raises:
        ValueError: ranks have met and are told different things; or they have not met in several attempts.
            Where no launcher forms a new world, at the first failure.
    """
    leave()
    job = jobs.current()
    if job.member is not None and not job.process_sets_left:  # else they have not been made again so far
        job.process_sets_left = job.member.added_process_sets()
    basics.shutdown()
    job.belongings.forget()  # the old transport goes with its engine, before the new one is opened
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
    InAnotherFunction: it has nothing to do with the others.
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
    """Make the sets again that scripts had added; collective, with the same argument on all ranks.

    The ProcessSet objects of this process that stood for them are registered again. A set with a rank that
    does not exist any more stays unregistered, and rank 0 says so: operations in it are refused.
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
