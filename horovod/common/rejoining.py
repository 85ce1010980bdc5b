"""How a process leaves a job that has failed or changed, and joins the next one: what elastic training does
between two worlds.

The engine goes by force: once it has failed it waits for nobody. Process sets that scripts have added are
noted before, and made again in the new world by ``rebuild``, where the same ranks exist.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

from horovod.common import jobs
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError

__all__ = ["AGENT", "MOST_ATTEMPTS", "leave", "rebuild", "rejoin"]

AGENT = "HOROVOD_AGENT"  # set where a launcher tells each process what world comes next
MOST_ATTEMPTS = 5  # to form one world; each time the launcher may have published another
_log = logging.getLogger("horovod")


def leave() -> None:
    """Stop this rank's engine, whoever is still in the job: what is pending fails. Harmless when repeated.

    Who and how many ranks are there is answered still, until ``rejoin``.
    """
    member = jobs.current().member
    if member is not None:
        member.engine.shutdown()


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
    job.forget()  # the old transport goes with its engine, before the new one is opened
    for attempt in range(1, MOST_ATTEMPTS + 1):
        begun = time.monotonic()
        try:
            basics.init(process_sets=job.process_sets_given)
            break
        except (ValueError, HorovodInternalError) as error:
            if attempt == MOST_ATTEMPTS or not _may_be_another_next_time(error):
                raise
            _log.warning(
                "horovod: the new world was not formed (%s after %.1f s): %s. This process asks for the "
                "next one.",
                *(f"attempt {attempt} of {MOST_ATTEMPTS}", time.monotonic() - begun, error),
            )
    job.resets += 1


def _may_be_another_next_time(error: Exception) -> bool:
    """Whether init() failed because somebody has died meanwhile, and a launcher will say who is left."""
    job = jobs.current()
    is_told = job.open_world is not None or bool(os.environ.get(AGENT))
    was_lost = isinstance(error, HorovodInternalError) or isinstance(error.__cause__, HorovodInternalError)
    return is_told and (was_lost or not job.has_met)


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
