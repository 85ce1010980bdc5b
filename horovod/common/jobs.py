"""The job that the running code belongs to.

A process is usually one rank of one job. If threads are ranks, each enters its own ``Job``. An object that is
called later, perhaps on another thread, such as a hook of autograd, remembers the job it was made in, and
runs in that.

A process forked after hvd.init() is in no job. It lacks the engine's thread, may find locks held for ever,
and MPI and the shared memory are the parent's. Most never notice: workers of a DataLoader at most call
rank(). The core guards itself too (native/base/process.h); Python checks first, before it takes its own
locks.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from horovod.common import errors
from horovod.common.belongings import OF_THIS_PROCESS, Belongings
from horovod.common.errors import OF_HVD, Wording
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership
from horovod.common.process_sets import ProcessSet
from horovod.common.rendezvous.meeting import OpenWorld

P = ParamSpec("P")
T = TypeVar("T")
_forked_by = ""  # as "rank 3"; "" unless this process is such a child


@dataclass(eq=False)
class Job:
    """One rank's part in a job. ``init()`` begins it again."""

    # (settings, ranks or [] for all) -> the world; None: as this process' launcher says
    open_world: OpenWorld | None = None
    wording: Wording = OF_HVD  # of errors
    belongings: Belongings = field(default_factory=Belongings)  # objects kept for the job
    member: Membership | None = None  # from init() to shutdown()
    inherited: Membership | None = None  # in a forked child, the parent's: it only answers questions
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while the membership begins or ends
    has_met: bool = False  # the ranks of the last init() have met, whether or not it succeeded
    is_rejoining: bool = False  # init() is to join the world after one that was left (rejoining.py)
    process_sets_given: list[ProcessSet] = field(default_factory=list)  # to the last init() that got any
    # Sets that scripts added to the previous membership, to be made again: ranks, and ProcessSet objects.
    process_sets_left: list[tuple[list[int], list[ProcessSet]]] = field(default_factory=list)
    # Called in each world of elastic training when its process sets exist, before the state adapts: a rank
    # whose number has changed may be in another set.
    follow_process_sets: Callable[[], None] = lambda: None
    resets: int = 0  # how often elastic training has joined another world
    losses: int = 0  # how often it left one because a rank was lost
    recovery_microseconds: int = 0  # from a loss or a change of hosts until training continued
    in_function: str = ""  # name of the function that hvd.elastic.run calls, or called last
    timeline: tuple[str, bool] | None = None  # the file that rank 0 writes, and whether it marks rounds
    began: float = 0.0  # when this process joined its first world, in seconds since the epoch

    def become_a_childs(self) -> None:
        """Adapt to a forked child: it lacks the thread that held the lock, and the engine's thread."""
        self.lock = threading.Lock()
        self.inherited, self.member = self.member or self.inherited, None
        if self.inherited is not None:
            self.inherited.world.leave_to_parent()  # others shall notice the parent's end

    def refuse_child(self) -> None:
        """HorovodInternalError in a forked child of a rank of this job."""
        if self.inherited is not None:
            raise _refusal(f"rank {self.inherited.world.rank}", self.wording)

    def running(self) -> Membership:
        """The membership, for questions about the job. ValueError before init()."""
        refuse_forked()
        if self.member is None:
            raise errors.not_initialized()
        return self.member

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Inside the block, this thread works for the job."""
        token = _entered.set(self)
        try:
            with self.belongings.entered():
                yield
        finally:
            _entered.reset(token)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function for the job, on any thread."""
        if current() is self:
            return function(*args, **kwargs)
        with self.entered():
            return function(*args, **kwargs)


_of_this_process = Job(belongings=OF_THIS_PROCESS)
_entered: ContextVar[Job] = ContextVar("horovod_job", default=_of_this_process)


def current() -> Job:
    """The job that this thread has entered, else the one of this process."""
    return _entered.get()


def note_fork(parent: str) -> None:
    """Note that ``parent`` has just forked this process. The first note counts."""
    global _forked_by
    _forked_by = _forked_by or parent


def refuse_forked() -> None:
    """HorovodInternalError in a forked child of a process that has called hvd.init()."""
    if _forked_by:
        raise _refusal(_forked_by, OF_HVD)


def _refusal(parent: str, wording: Wording) -> HorovodInternalError:
    return errors.forked(process=os.getpid(), parent=parent, to_do=wording.in_child)
