"""Which job the running code is a part of.

A process is one rank of one job at most, and nobody needs to say which. Where threads are ranks, each enters
its own ``Job``. Who is called by others later, perhaps on a thread of theirs, such as a hook of autograd's,
remembers the job it was made in, and runs in that.

Processes that were forked by one that had called hvd.init() are in none. The engine's thread is not in them,
its locks may be held for ever, and MPI and the shared memory are the parent's. Most of them never notice:
workers of a DataLoader ask for rank() at most. The core guards itself too (native/base/process.h). Python
checks first, before it takes its own locks.
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
_forked_by = ""  # as "rank 3"; "" where this process is no such child


class Job:
    """One rank's part in a job. ``init()`` begins it anew.

    Args:
        open_world: (settings, ranks or [] for all) -> the world; None: as the launcher says that started
            this process.
        wording: of errors.

    Attributes:
        belongings: what is kept for it.
        member: the membership from init() to shutdown(), else None.
        inherited: in a forked child, the parent's: it answers questions, and serves no operation.
        lock: held by who begins or ends the membership.
        is_rejoining: init() is to join what comes after a world that was left (rejoining.py).
        has_met: the ranks of the last init() have met, whatever came of it.
        process_sets_given: those of the last init() that was told any.
        process_sets_left: those that scripts had added to the membership before, to be made again: ranks, and
            the objects that stand for them.
        follow_process_sets: called in each world of elastic training once its process sets are there, before
            the state adapts: whose rank has changed may be in another set.
        resets: how often elastic training has joined another world.
        losses: how often it left one because a rank was lost.
        recovery_microseconds: from there, or from a change of hosts, until training went on.
        in_function: what hvd.elastic.run calls, or has called last: its name.
        timeline: the file that rank 0 writes, and whether rounds are marked; None while nobody wants one.
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
        """In a forked child: whoever held the lock is not here, and neither is the engine's thread."""
        self.lock = threading.Lock()
        self.inherited, self.member = self.member or self.inherited, None
        if self.inherited is not None:
            self.inherited.world.leave_to_parent()  # others shall notice when that ends

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
        """Call a function for the job, on whatever thread."""
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
    """This process has just been forked by ``parent``; who was forked itself stays what it was."""
    global _forked_by
    _forked_by = _forked_by or parent


def refuse_forked() -> None:
    """HorovodInternalError in a forked child of a process that has called hvd.init()."""
    if _forked_by:
        raise _refusal(_forked_by, OF_HVD)


def _refusal(parent: str, wording: Wording) -> HorovodInternalError:
    return errors.forked(process=os.getpid(), parent=parent, to_do=wording.in_child)
