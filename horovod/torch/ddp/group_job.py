"""The job of a process group's ranks: an engine each, and connections over TCP or shared memory.

Its operations do not mix with other jobs'. The ranks meet in the group's store, as torch's own backends do,
and request the same operations in one order.
"""

from __future__ import annotations

import datetime
import itertools
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from horovod import _native as native
from horovod.common import jobs, notes
from horovod.common.errors import Wording
from horovod.common.exits import at_exit, uncaught_exception
from horovod.common.membership import Membership
from horovod.common.rendezvous.meeting import open_over_tcp
from horovod.common.rendezvous.places import host_of
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of
from horovod.gloo_threads import wait_for_gloo_in_destroy_process_group
from horovod.torch.ddp import errors
from horovod.torch.ddp.agreement import terms_as_bytes, terms_from_bytes

WORDING = Wording(
    forming="forming a job of the process group",
    if_absent="do these processes run, and does each make the same calls with this process group, as "
    "ddp.compress()? Where they may come later, give init_process_group() or new_group() a longer timeout=",
    not_running="The job of the process group has ended: nothing can be reduced in it any more.",
    in_child="no gradient can be reduced in it. Leave backward() to the process that has made the process "
    "group; a process that shall be a rank itself must be forked before that.",
)

_begun: dict[jobs.Job, None] = {}  # engines live as long as their job is here
_timelines: Iterator[int] = itertools.count(1)  # numbers the timelines of this process' jobs


def begin(group: dist.ProcessGroup, algorithm: str | None = None) -> jobs.Job:
    """Begin a job of the group's ranks, with the group's rank numbers. Collective.

    Args:
        algorithm: overrides HOROVOD_ALLREDUCE_ALGORITHM unless None.

    ValueError, on all ranks, if they cannot meet, have different arguments, or one has a wrong setting.
    """
    wait_for_gloo_in_destroy_process_group()
    store: Any = dist.distributed_c10d._get_process_group_store(group)
    # The number of jobs that this group has made, equal on all ranks: a store may hold several.
    number = store.add(f"horovod.ddp/made_by/{group.rank()}", 1)

    meeting = StoreRendezvous(
        PrefixStore(f"horovod.ddp/{number}", store),
        assignment_of(group.rank(), group.size(), []),
        "the process group's store",
        host_of(store),
        seconds=_seconds_of(group),
        wording=WORDING,
    )
    settings = _settings_of_all(meeting, group, algorithm)

    def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
        return open_over_tcp(settings, meeting)

    job = jobs.Job(wording=WORDING)  # keeps no process group alive
    with job.lock, job.entered():
        job.member = Membership.begin(open_world, settings=settings, in_order=True, wording=WORDING)
    _begun[job] = None
    notes.tell_from_below("uses ddp")
    return job


def begun() -> list[jobs.Job]:
    return list(_begun)


def leave(job: jobs.Job) -> None:
    """Leave a job. Operations under way fail, on any rank. Idempotent."""
    _begun.pop(job, None)
    with job.lock, job.entered():
        member, job.member = job.member, None
        if member is not None:
            member.leave()
            job.belongings.forget()


def leave_soon(job: jobs.Job) -> None:
    """Leave a job without waiting for other ranks. For finalizers, which may run anywhere."""
    threading.Thread(target=leave, args=(job,), name="horovod-ddp-leaving").start()


@at_exit
def _leave_all() -> None:
    """After an exception other ranks instead notice that this process' connections are closed."""
    for job in list(_begun) if uncaught_exception() is None else []:
        leave(job)


def _become_a_childs() -> None:
    for job in _begun:
        job.become_a_childs()
    _begun.clear()


os.register_at_fork(after_in_child=_become_a_childs)


def _settings_of_all(
    meeting: StoreRendezvous, group: dist.ProcessGroup, algorithm: str | None
) -> native.Settings:
    """Return this rank's settings. ValueError on all ranks if any has wrong ones."""
    settings, own = None, {"seconds": repr(_seconds_of(group)), "wrong": ""}
    try:
        settings = _settings_of(group, algorithm)
    except ValueError as error:
        own["wrong"] = str(error)
    mine = terms_as_bytes(own)
    said = list(map(terms_from_bytes, [mine] if group.size() == 1 else meeting.allgather("settings", mine)))
    wrong = {rank: each["wrong"] for rank, each in enumerate(said) if each["wrong"]}
    if wrong or settings is None:
        raise errors.wrong_settings(values=wrong)
    if settings.stall_check_disable or settings.stall_shutdown_time_seconds == 0:
        _limit_stalls(settings, group, max(float(each["seconds"]) for each in said))
    return settings


def _settings_of(group: dist.ProcessGroup, algorithm: str | None) -> native.Settings:
    """Return the environment's settings, adjusted to the group. ValueError for a wrong one."""
    settings = native.Settings.from_environment()
    settings.do_without_mpi()
    if settings.cache_capacity:
        settings.cache_capacity = 1 << 40  # without cache entries ranks could not predict the order
    # Results must not depend on DDP's buckets, which change when training is resumed.
    settings.deterministic = True
    if algorithm is not None:
        settings.allreduce_algorithm = algorithm
    if settings.timeline not in ("", "DYNAMIC") and group.rank() == 0:
        settings.timeline = _timeline_of(settings.timeline, next(_timelines))
    return settings


def _limit_stalls(settings: native.Settings, group: dist.ProcessGroup, seconds: float) -> None:
    """Use the longest timeout of the group on any rank, as a job has one limit."""
    call = "init_process_group" if group is dist.group.WORLD else "new_group"
    settings.stall_shutdown_time_seconds = seconds
    settings.stall_shutdown_asked_by = f"{call}(timeout=timedelta(seconds={seconds:g}))"
    warns = not settings.stall_check_disable
    settings.stall_check_time_seconds = (
        min(settings.stall_check_time_seconds, seconds / 2) if warns else seconds
    )
    settings.stall_check_disable = False  # it would disable the timeout too


def _timeline_of(path: str, number: int) -> str:
    """Return a file for each job, as with several groups several processes may be rank 0."""
    first = dist.get_rank()
    marks = ["ddp", *([f"rank{first}"] if first else []), *([str(number)] if number > 1 else [])]
    file = Path(os.fspath(path))
    return str(file.with_name(".".join([file.stem, *marks]) + file.suffix))


def _seconds_of(group: dist.ProcessGroup) -> float:
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if isinstance(timeout, datetime.timedelta):
            return timeout.total_seconds()
    return float(dist.default_pg_timeout.total_seconds())
