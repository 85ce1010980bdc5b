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
from typing import ParamSpec, TypeVar

from horovod.common import errors
from horovod.common.belongings import OF_THIS_PROCESS, Belongings
from horovod.common.errors import OF_HVD, Wording
from horovod.common.exceptions import HorovodInternalError
from horovod.common.membership import Membership
from horovod.common.process_sets import ProcessSet
from horovod.common.rendezvous.meeting import OpenWorld

__all__ = ["Job", "current", "note_fork", "refuse_forked"]

P = ParamSpec("P")
T = TypeVar("T")
_forked_by = ""  # as "rank 3"; "" unless this process is such a child


class Job:
    """One rank's part in a job. ``init()`` begins it again.

    Args:
        open_world: (settings, ranks or [] for all) -> the world; None: as this process' launcher says.
        wording: of errors.

    Attributes:
        belongings: objects kept for the job.
        member: the membership from init() to shutdown(), else None.
        inherited: in a forked child, the parent's membership, which answers questions but serves no
            operation.
        lock: held while the membership begins or ends.
        is_rejoining: init() is to join the world after one that was left (rejoining.py).
        has_met: the ranks of the last init() have met, whether or not it succeeded.
        process_sets_given: the sets of the last init() that was given any.
        process_sets_left: sets that scripts added to the previous membership, to be made again: ranks, and
            their ProcessSet objects.
        follow_process_sets: called in each world of elastic training when its process sets exist, before the
            state adapts: a rank whose number has changed may be in another set.
        resets: how often elastic training has joined another world.
        losses: how often it left one because a rank was lost.
        recovery_microseconds: from a loss or a change of hosts until training continued.
        in_function: name of the function that hvd.elastic.run calls, or called last.
        timeline: the file that rank 0 writes, and whether it marks rounds; None without a timeline.
        began: when this process joined its first world, in seconds since the epoch.
    """

    def __init__(self, open_world: OpenWorld | None = None, wording: Wording = OF_HVD) -> None:
        self.open_world = open_world
        self.wording = wording
        self.belongings = Belongings()
        self.member: Membership | None = None
        self.inherited: Membership | None = None
        self.lock = threading.Lock()
        self.has_met = False
        self.is_rejoining = False
        self.process_sets_given: list[ProcessSet] = []
        self.process_sets_left: list[tuple[list[int], list[ProcessSet]]] = []
        self.follow_process_sets: Callable[[], None] = lambda: None
        self.resets = self.losses = self.recovery_microseconds = 0
        self.in_function = ""
        self.timeline: tuple[str, bool] | None = None
        self.began = 0.0

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


_of_this_process = Job()
_of_this_process.belongings = OF_THIS_PROCESS
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
