"""Life cycle of this process' membership in a job: init, shutdown, who am I, what was built.

One ``HorovodBasics`` exists per process, ``basics``; it owns the engine, and every framework face asks it for
it.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod import _native as native
from horovod.common import util
from horovod.common.build_info import build_info
from horovod.common.exceptions import HorovodInternalError
from horovod.common.process_sets import ProcessSet, global_process_set

__all__ = ["HorovodBasics", "Membership", "basics"]


@dataclass
class Membership:
    """What a process holds from init() to shutdown().

    ``unnamed`` numbers operations that were given no name.
    """

    world: native.World
    engine: native.Engine
    unnamed: Iterator[int] = field(default_factory=itertools.count)


class HorovodBasics:
    """The functions of ``hvd`` that are about the job rather than about tensors. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._member: Membership | None = None
        self._is_child = False
        self._exit_registered = False
        self._has_failed = False  # an engine of this process ended otherwise than in order
        self._forgetters: list[Callable[[], None]] = []

    def init(
        self, comm: Sequence[int] | Any | None = None, process_sets: Sequence[ProcessSet] | str | None = None
    ) -> None:
        """Join the job this process was started in, and return once all ranks have.

        Settings (HOROVOD_* variables) are read here. A second call does nothing; after shutdown() init works
        again.

        Args:
            comm: None, the list of all ranks, or mpi4py's COMM_WORLD.
            process_sets: None; process sets come with a later release.

        Raises:
            ValueError: start-up failed, a setting is malformed, or an argument asks for what is not served.
        """
        if process_sets:
            raise ValueError(
                f"init(process_sets={process_sets!r}): process sets come with a later release of this "
                "package; leave the argument out."
            )
        with self._lock:
            if self._member is not None:
                return
            self._refuse_unknown_communicator(comm)
            settings = native.Settings.from_environment()
            world = native.open_world(settings, build_info().mpi.search_prefix())
            if isinstance(comm, Sequence) and len(comm) > 0 and sorted(comm) != list(range(world.size)):
                raise ValueError(
                    f"init(comm={list(comm)}) on rank {world.rank} of {world.size}: a job over some of the "
                    "ranks comes with process sets, in a later release; leave comm out to use all ranks."
                )
            self._forget_earlier_jobs()
            self._join(Membership(world, native.Engine(world, settings)))

    def _join(self, member: Membership) -> None:
        self._member = member
        global_process_set._place(member.world.rank, list(range(member.world.size)))
        if not self._exit_registered:
            self._exit_registered = True
            atexit.register(self._leave_at_exit)
            os.register_at_fork(after_in_child=self._forget_in_child)

    @staticmethod
    def _refuse_unknown_communicator(comm: Sequence[int] | Any | None) -> None:
        if comm is None or (isinstance(comm, Sequence) and not isinstance(comm, str)):
            return
        mpi4py_mpi = sys.modules.get("mpi4py.MPI")
        if mpi4py_mpi is not None and isinstance(comm, mpi4py_mpi.Comm):
            same = (mpi4py_mpi.IDENT, mpi4py_mpi.CONGRUENT)
            if mpi4py_mpi.Comm.Compare(comm, mpi4py_mpi.COMM_WORLD) in same:
                return
            raise ValueError(
                "init(comm=...): communicators other than COMM_WORLD come with process sets, in a later "
                "release; leave comm out to use all ranks."
            )
        raise ValueError(
            f"init(comm={comm!r}): comm must be None, the list of all ranks or mpi4py's COMM_WORLD, not "
            f"{type(comm)}."
        )

    def shutdown(self) -> None:
        """Leave the job. Operations still pending fail with HorovodInternalError on all ranks.

        Harmless when repeated.
        """
        with self._lock:
            member, self._member = self._member, None
            global_process_set._place(None, None)
            if member is not None:
                member.engine.shutdown()
                self._has_failed |= member.engine.has_failed

    def _leave_at_exit(self) -> None:
        """Leave in order, unless the engine failed or an uncaught exception ends the interpreter.

        In those cases MPI is not finalised: finalising waits for the other ranks, who may wait for us.
        Without it mpirun notices at once that this rank failed, and ends the job.
        """
        if _ends_from_uncaught_exception():
            return
        self.shutdown()
        if not self._is_child and not self._has_failed:
            self._forget_earlier_jobs()  # an engine must not outlive the MPI it lives in
            native.close_mpi()

    def _forget_in_child(self) -> None:
        """A forked child is no member: the engine's thread exists in the parent only."""
        self._lock = threading.Lock()
        self._is_child = True
        if self._member is not None:
            # Never freed: the engine's destructor would wait for a thread that is not there.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._member.engine))
            self._member = None

    def before_next_job(self, forget: Callable[[], None]) -> None:
        """Have ``forget`` called, to let go of an ended job: before each init(), and at exit."""
        self._forgetters.append(forget)

    def _forget_earlier_jobs(self) -> None:
        for forget in self._forgetters:
            forget()

    def member(self) -> Membership:
        """The running membership; HorovodInternalError outside init() ... shutdown()."""
        if self._member is None:
            raise HorovodInternalError(
                "Horovod is not running: call hvd.init() first, and no operation after hvd.shutdown()."
            )
        return self._member

    def _world(self) -> native.World:
        if self._member is None:
            raise ValueError("Horovod has not been initialized; use hvd.init().")
        return self._member.world

    def is_initialized(self) -> bool:
        """Whether init() has been called, and shutdown() not since."""
        return self._member is not None

    def rank(self) -> int:
        """This process' number in the job, 0 to size() - 1. ValueError before init()."""
        return self._world().rank

    def size(self) -> int:
        """Number of processes in the job. ValueError before init()."""
        return self._world().size

    def local_rank(self) -> int:
        """This process' number among those of its host. ValueError before init()."""
        return self._world().local_rank

    def local_size(self) -> int:
        """Number of processes on this host. ValueError before init()."""
        return self._world().local_size

    def cross_rank(self) -> int:
        """This process' number among those with the same local rank on other hosts.

        ValueError before init().
        """
        return self._world().cross_rank

    def cross_size(self) -> int:
        """Number of hosts that have a process with this local rank. ValueError before init()."""
        return self._world().cross_size

    def is_homogeneous(self) -> bool:
        """Whether all hosts have the same number of processes. ValueError before init()."""
        return self._world().homogeneous

    def mpi_threads_supported(self) -> bool:
        """Whether MPI runs with MPI_THREAD_MULTIPLE. ValueError before init(), or when no MPI is in use."""
        world = self._world()
        if not world.mpi_library:
            raise ValueError(
                "mpi_threads_supported() needs a job that was started with MPI; this one was not."
            )
        return world.mpi_threads_multiple

    def mpi_enabled(self) -> bool:
        """Whether MPI forms the job, or would form it."""
        return self.mpi_built() if self._member is None else bool(self._member.world.mpi_library)

    def mpi_built(self) -> bool:
        """Whether this build has an MPI transport."""
        return util.mpi_built()

    def gloo_enabled(self) -> bool:
        """Always False: what Gloo did is done by the core's own transports."""
        return False

    def gloo_built(self) -> bool:
        """Always False, as gloo_enabled()."""
        return util.gloo_built()

    def nccl_built(self) -> int:
        """NCCL's version code; 0, as this build has no NCCL."""
        return util.nccl_built()

    def ddl_built(self) -> bool:
        """Always False: IBM's DDL is no longer maintained."""
        return util.ddl_built()

    def ccl_built(self) -> bool:
        """Always False: oneCCL is not used."""
        return util.ccl_built()

    def cuda_built(self) -> bool:
        """Whether this build serves CUDA tensors: not yet."""
        return False

    def rocm_built(self) -> bool:
        """Whether this build serves ROCm tensors: not yet."""
        return False


def _ends_from_uncaught_exception() -> bool:
    """Whether the interpreter is ending because nobody caught an exception (known to atexit only by these
    traces).

    At an interactive prompt every typing error leaves the same traces, and means nothing.
    """
    if hasattr(sys, "ps1"):
        return False
    return getattr(sys, "last_exc", None) is not None or getattr(sys, "last_value", None) is not None


basics = HorovodBasics()
