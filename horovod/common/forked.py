"""Processes that were forked by one that had called hvd.init(): what they are told.

The engine's thread is not in them, its locks may be held for ever, and MPI and the shared memory are the
parent's. Most of them never notice: workers of a DataLoader ask for rank() at most. The core guards itself
too (native/base/process.h); here it is said before Python waits for a lock of its own.
"""

from __future__ import annotations

import os

from horovod.common import errors
from horovod.common.exceptions import HorovodInternalError
from horovod.common.wording import OF_HVD, Wording

__all__ = ["refusal", "refuse", "take_note"]

_parent = ""  # as "rank 3"; "" in any other process


def take_note(parent: str) -> None:
    """This process has just been forked by ``parent``; who was forked itself stays what it was."""
    global _parent
    _parent = _parent or parent


def refuse() -> None:
    """HorovodInternalError in such a process."""
    if _parent:
        raise refusal(_parent, OF_HVD)


def refusal(parent: str, wording: Wording) -> HorovodInternalError:
    """What a child of ``parent`` is told that asks for something of the parent's job."""
    return errors.forked(process=os.getpid(), parent=parent, to_do=wording.in_child)
