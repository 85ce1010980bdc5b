"""Life cycle of a rank's membership in a job: init, shutdown, ranks and sizes, facts of the build.

``basics`` is the only ``HorovodBasics``. It acts for the caller's job (``jobs.current()``), which has the
engine, and handles what a process has only once: its exit, its children, its MPI.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

from horovod import _native as native
from horovod.common import errors, host_memory, jobs, notes, restarting, util, variables
from horovod.common.agent_channel import accuse, agent_channel
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.agent_messages import Place
from horovod.common.exceptions import HorovodInternalError, lost_ranks
from horovod.common.exits import at_exit, uncaught_exception
from horovod.common.membership import Membership, as_launched
from horovod.common.options import BY_VARIABLE
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.rendezvous.meeting import OpenWorld
from horovod.common.rendezvous.places import opening

DYNAMIC = "DYNAMIC"  # HOROVOD_TIMELINE: no file before start_timeline()
MOST_ATTEMPTS = 5  # to form a world, if no lost rank explains the failures
_COARSE = 0.1  # seconds: the resolution of file systems' clocks
_log = logging.getLogger("horovod")


class HorovodBasics:
    """The functions of ``hvd`` that concern the job, not tensors. Thread-safe."""

    def __init__(self) -> None:
        self._is_known = False  # perhaps known to MPI, which would take a forked child for this process
        self._is_child = False
        self._exit_registered = False
        self._has_failed = False  # an engine of this process ended with an error
        self._departures = 0  # calls of hvd.shutdown()
        self._has_left = False  # at its exit
        at_exit(self._tell_when_done)

    def init(
        self,
        comm: Sequence[int] | Any | None = None,
        process_sets: Sequence[ProcessSet] | str | None = None,
        *,
        store: Any = None,
        rank: int | None = None,
        size: int | None = None,
    ) -> None:
        """Join the job this process was started in. Returns when all its ranks have joined.

        Reads the settings (HOROVOD_* variables). A second call does nothing; after shutdown() init works
        again.

        Args:
            comm: which of the launched processes form the job: None (all), a list of their ranks, or an
                mpi4py communicator. Each of them makes the call; other processes may form jobs of their own.
            process_sets: ProcessSets to register, the same on all ranks; or "dynamic": none yet, but
                add_process_set() and remove_process_set() work, as with HOROVOD_DYNAMIC_PROCESS_SETS=1.
            store: where the processes meet, instead of the launcher's choice: a store of torch.distributed,
                or any object with set(key, value) and a get(key) that waits. Requires ``rank`` and ``size``:
                this process' number, and the number of processes.

        Raises:
            ValueError: start-up failed, a setting is malformed, an argument is wrong, ranks have different
                process sets, or this process cannot join the processes it was started with.
            NotImplementedError: a ProcessSet is a communicator, and ``comm`` is not.
            HorovodInternalError: this process was forked by one that has called init().
        """
        jobs.refuse_forked()
        if isinstance(process_sets, str):
            if process_sets.lower() != "dynamic":
                raise errors.unknown_process_sets(got=process_sets)
            os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
            process_sets = None
        open_world = opening(comm, store, rank, size)
        job = jobs.current()
        with job.lock:
            if self.is_initialized():
                return
            variables.refuse_what_is_no_text(os.environ)
            job.belongings.forget()
            if not self._is_known:
                self._is_known = True
                os.register_at_fork(after_in_child=self._forget_in_child)
            notes.tell("joining")
            way = open_world or job.open_world or as_launched
            job.process_sets_given = list(process_sets or [])
            settings = _settings_of(job)
            job.member = _member_of_what_is_formed(job, way, comm, settings)
            _go_on_with_timeline_of_processes_before(job)
            notes.tell("joined")
            notes.tell_from_below("uses hvd")
            if self._departures:
                notes.tell(f"inside {self._departures}")
            if job.member.world.rank == 0 and notes.VARIABLE not in os.environ:  # else horovodrun warns
                variables.warn_of_unknown(os.environ)
            if not self._exit_registered:
                self._exit_registered = True
                at_exit(self._leave_at_exit)

    def shutdown(self) -> None:
        """Leave the job. Pending operations fail with HorovodInternalError on all ranks. Idempotent."""
        job = jobs.current()
        with job.lock:
            member, job.member, job.inherited = job.member, None, None
            if member is not None:
                member.leave()
                self._has_failed |= member.engine.has_failed
                self._departures += 1
                notes.tell(f"outside {self._departures}")

    def _leave_at_exit(self) -> None:
        """Leave in order, unless the engine failed or an uncaught exception ends the interpreter.

        In those cases MPI is not finalised here: finalising waits for the other ranks, which may wait for
        this one. Without it mpirun notices at once that this rank failed, and ends the job. The exit code is
        not known yet, so MPI is finalised only when the interpreter is gone.
        """
        if not self._is_child:
            notes.tell("leaving")
        if self._is_child or uncaught_exception() is not None:
            return
        self.shutdown()
        if not self._has_failed:
            jobs.current().belongings.forget()  # an engine must not outlive the MPI that it uses
            native.close_mpi_at_exit()
        self._has_left = True

    def _tell_when_done(self) -> None:
        """Report that all exit actions of scripts are done: registered first, this one runs last."""
        if self._has_left and not self._is_child:
            notes.tell("done")

    def _forget_in_child(self) -> None:
        """Make a forked child a non-member: the engine's thread exists only in the parent.

        rank() still answers: workers of a DataLoader seed and shard by it.
        """
        self._is_child = True
        job = jobs.current()
        parent = f"rank {job.member.world.rank}" if job.member else "a process that has called hvd.init()"
        job.become_a_childs()
        jobs.note_fork(parent)

    def member(self) -> Membership:
        """The running membership. HorovodInternalError outside init() ... shutdown()."""
        jobs.refuse_forked()
        job = jobs.current()
        if job.member is None:
            raise errors.not_running(why=job.wording.not_running)
        return job.member

    def _world(self) -> native.World:
        return (jobs.current().inherited or self.running()).world

    def _place(self) -> native.World | Place:
        """The launcher numbers a host's processes if it formed the job; otherwise the core does, by ranks."""
        member = jobs.current().inherited or self.running()
        return member.place or member.world

    def running(self) -> Membership:
        """The running membership, for questions about the job. ValueError before init()."""
        return jobs.current().running()

    def add_process_set(self, process_set: ProcessSet | Iterable[int]) -> ProcessSet:
        """Register a set of ranks. Collective: returns when every rank of the job has called it.

        Returns:
            The ProcessSet, whose ``process_set_id`` is the smallest free number.

        Raises:
            ValueError: a rank does not exist, the ranks form a set already, process sets are not dynamic, or
                init() has not been called.
            NotImplementedError: the set is a communicator.
        """
        made = process_set if isinstance(process_set, ProcessSet) else ProcessSet(process_set)
        return self.running().add_process_set(made)

    def remove_process_set(self, process_set: ProcessSet) -> bool:
        """End a set. Collective: returns when every rank of the job has called it. Its number is free again.

        Pending operations of the set fail. Returns False for the global set, and for one that is not
        registered. ValueError if process sets are not dynamic, or before init().
        """
        return self.running().remove_process_set(process_set)

    def _comm_process_set_id(self, comm: Any) -> int:
        """The number of the set that was made from an mpi4py communicator. ValueError if none was."""
        return self.running().id_of_communicator(comm)

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        """The ranks of every set, by its number."""
        return self.running().engine.process_sets()

    def start_timeline(self, file_path: str, mark_cycles: bool = False) -> None:
        """Begin a Chrome trace of all operations in a file, which rank 0 writes. Ends the previous trace.

        ValueError before init(), if the file cannot be written, or if HOROVOD_TIMELINE was not set (to a
        file, or to DYNAMIC) at init().
        """
        self.running().engine.start_timeline(os.fspath(file_path), mark_cycles)
        jobs.current().timeline = (os.fspath(file_path), mark_cycles)

    def stop_timeline(self) -> None:
        """End the file that start_timeline() began. Raises ValueError as it does."""
        self.running().engine.stop_timeline()
        jobs.current().timeline = None

    def metrics(self, process_set: ProcessSet = global_process_set) -> dict[str, int]:
        """This rank's counters of a process set, since it was registered. Cheap.

        Returns:
            operations, buckets (fused batches), tensor_bytes (before compression), wire_bytes (handed to
            other ranks), announcements (negotiation rounds), cache_hits, begun (cache hits of native DDP
            whose exchange did not wait for an answer), refusals (operations that ranks disagreed about),
            saturated (values that a codec's range cut off), residuals_dropped (elements of error feedback
            that other ranks encode now), waiting_microseconds (from submission until all ranks agreed, summed
            over operations), collective_microseconds (communicating), collective_cpu_microseconds.
            Of tensors on GPUs: gpu_operations and gpu_microseconds (on the GPU, including waits for other
                ranks).
            Of allreduces through the host: gpu_encode_microseconds, gpu_copy_to_host_microseconds,
                gpu_reduce_microseconds (on the host), gpu_copy_back_microseconds, gpu_decode_microseconds and
                gpu_whole_microseconds (first stage to last; they overlap), counted when the GPU is done.
            For all sets: engine_cpu_microseconds (processor time of the core's thread) and
                blocked_microseconds (callers waiting for operations).
            Of this process, in all worlds: resets (elastic training continued in another world), losses (it
                went back to a commit because a rank was lost) and recovery_microseconds (from leaving a world
                until training continued).

        Raises:
            ValueError: before init(), or for a set that is not registered.
        """
        job = jobs.current()
        of_this_process = {
            "resets": job.resets,
            "losses": job.losses,
            "recovery_microseconds": job.recovery_microseconds,
        }
        return self.running().metrics(process_set) | of_this_process

    def is_initialized(self) -> bool:
        """Whether init() has been called, and shutdown() not since."""
        job = jobs.current()
        return (job.inherited or job.member) is not None

    def rank(self) -> int:
        """This process' number in the job, 0 to size() - 1. ValueError before init()."""
        return self._world().rank

    def size(self) -> int:
        """Number of processes in the job. ValueError before init()."""
        return self._world().size

    def local_rank(self) -> int:
        """This process' number among the processes of its host. ValueError before init().

        It may choose the GPU: in elastic jobs too, no two live processes of a host begin with the same one.
        """
        return self._place().local_rank

    def local_size(self) -> int:
        """Number of processes on this host. ValueError before init()."""
        return self._place().local_size

    def cross_rank(self) -> int:
        """This process' number among those with its local rank on all hosts. ValueError before init()."""
        return self._place().cross_rank

    def cross_size(self) -> int:
        """Number of hosts that have a process with this local rank. ValueError before init()."""
        return self._place().cross_size

    def is_homogeneous(self) -> bool:
        """Whether all hosts have the same number of processes. ValueError before init()."""
        return self._world().homogeneous

    def mpi_threads_supported(self) -> bool:
        """Whether MPI runs with MPI_THREAD_MULTIPLE. ValueError before init(), or without MPI."""
        world = self._world()
        if not world.mpi_library:
            raise errors.no_mpi_threads()
        return world.mpi_threads_multiple

    def mpi_enabled(self) -> bool:
        """Whether MPI forms the job, or would form it."""
        return bool(self._world().mpi_library) if self.is_initialized() else util.mpi_built()

    def mpi_built(self) -> bool:
        """Whether this build has an MPI transport."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """Always False: the core's own transports replace Gloo."""
        return False

    def gloo_built(self) -> bool:
        """Always False, as gloo_enabled()."""
        return util.gloo_built()

    def nccl_built(self) -> int:
        """The version code of the NCCL found here, 22809 for 2.28.9; 0 without NCCL or without a GPU."""
        return util.nccl_built()

    def ddl_built(self) -> bool:
        """Always False: IBM's DDL is no longer maintained."""
        return util.ddl_built()

    def ccl_built(self) -> bool:
        """Always False: oneCCL is not used."""
        return util.ccl_built()

    def cuda_built(self) -> bool:
        """Whether this build serves CUDA tensors."""
        return util.cuda_built()

    def rocm_built(self) -> bool:
        """Always False: GPUs are served through CUDA only."""
        return False


def _settings_of(job: jobs.Job) -> native.Settings:
    """The settings in the environment, except for a timeline that is already being written.

    The timeline continues after a reset (see rejoining.py). It also continues in a process that takes
    another's place; which process that is, is known only when ranks have met.
    """
    settings = native.Settings.from_environment()
    if job.is_rejoining:
        settings.timeline = settings.timeline and DYNAMIC
        return settings
    job.began = time.time()
    is_written = settings.timeline not in ("", DYNAMIC)
    job.timeline = (settings.timeline, settings.timeline_mark_cycles) if is_written else None
    if is_written and _may_take_anothers_place():
        settings.timeline = DYNAMIC
    return settings


def _may_take_anothers_place() -> bool:
    return AGENT in os.environ and restarting.is_on()


def _go_on_with_timeline_of_processes_before(job: jobs.Job) -> None:
    """Continue the timeline in a job whose processes are started again."""
    if job.is_rejoining or not _may_take_anothers_place():
        return
    channel = agent_channel(os.environ)
    began = 0.0
    with contextlib.suppress(ValueError):  # the agent could not make a folder
        began = host_memory.began(os.environ[host_memory.VARIABLE])
    go_on_with_timeline(job, began, is_first=channel is None or channel.generation <= 1)


def go_on_with_timeline(job: jobs.Job, began: float, is_first: bool = False) -> None:
    """Have rank 0 write a timeline: append to this job's file, or begin it again.

    It begins again in the job's first world, or if the rank that wrote was lost with its host and this host
    has no file, or one of an earlier job (``began``: when this one did, in seconds since the epoch). A file
    that cannot be written is a ValueError if ``is_first``; later training continues without a timeline.
    """
    if job.timeline is None:
        return
    path, marks_cycles = job.timeline
    is_there = os.path.isfile(path) and os.path.getmtime(path) >= began - _COARSE
    try:
        job.running().engine.start_timeline(path, marks_cycles, is_there and not is_first)
    except ValueError as error:  # for example, this host lacks the folder
        if is_first:
            raise
        _log.warning("horovod: %s. Training goes on without a timeline.", error)
        job.timeline = None


def _member_of_what_is_formed(
    job: jobs.Job, way: OpenWorld, comm: Sequence[int] | Any | None, settings: native.Settings
) -> Membership:
    """The membership in the world that the ranks form.

    In an elastic job a rank may die while ranks meet. The launcher then forms another world of the other
    ranks, and this process joins that one: as often as a rank is lost. This process reports lost ranks to the
    launcher, which stops forming worlds with a rank that stays silent.
    """

    def open_and_note(settings: native.Settings, ranks: list[int]) -> native.World:
        world = way(settings, ranks)
        job.has_met = True
        return world

    failures = 0
    while True:
        begun = time.monotonic()
        job.has_met = False
        try:
            return Membership.begin(open_and_note, comm, job.process_sets_given, settings)
        except (ValueError, HorovodInternalError) as error:
            is_explained = bool(lost_ranks(error)) and not restarting.is_on()
            failures += not is_explained
            if failures == MOST_ATTEMPTS or not _may_be_another_next_time(job, error):
                raise
            _log.warning(
                "horovod: the world was not formed (%.1f s): %s. This process asks for the next one.",
                *(time.monotonic() - begun, error),
            )
            if is_explained:
                accuse(error)
        job.belongings.forget()


def _may_be_another_next_time(job: jobs.Job, error: Exception) -> bool:
    """Whether it failed because a rank died meanwhile, and a launcher will name the remaining ranks."""
    by_agent = bool(os.environ.get(AGENT))
    is_told = job.is_rejoining and (by_agent or job.open_world is not None)
    is_told |= by_agent and bool(BY_VARIABLE["HOROVOD_ELASTIC"].read(os.environ))
    was_lost = isinstance(error, HorovodInternalError) or isinstance(error.__cause__, HorovodInternalError)
    return is_told and (was_lost or not job.has_met)


basics = HorovodBasics()
