"""What a rank tells the wrapper that horovodrun put around it: its end alone does not show who is to blame.

The wrapper opens a pipe and names it in VARIABLE: `descriptor:device:inode`. A process that did not inherit
it has another file under that number, or none, and tells nothing; so it is without horovodrun.

    note := "joining" | "joined" | "outside " N | "inside " N | "leaving" | "done" | "follows " RANKS " " WHY,
            and a newline

`joining`, `joined`: hvd.init() begins, has ended. `leaving`: the interpreter ends, before others hear of it.
`outside`, `inside`: the Nth hvd.shutdown() has left the job, and hvd.init() has joined another. `done`: the
interpreter has left the job, and done all that scripts do at exit: MPI_Finalize() may wait for others.
`follows`: an operation failed because of other ranks: RANKS, as 1,3, or - where that is not known.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["VARIABLE", "tell", "tell_of_failure"]

VARIABLE = "HOROVOD_RANK_NOTES"
_LONGEST = 300  # characters: a note is one cell, see horovod.runner.rank
_told: set[str] = set()


def tell(note: str) -> None:
    """Write a note, once."""
    text = os.environ.get(VARIABLE, "")
    if not text or note in _told:
        return
    descriptor, device, inode = map(int, text.split(":"))
    try:
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == (device, inode):
            _told.add(note)
            os.write(descriptor, f"{note}\n".encode(errors="replace"))
    except OSError:
        return  # not inherited, or horovodrun is gone: nobody listens


def tell_of_failure(why: str, ranks: Iterable[int]) -> None:
    """Note that this rank fails because of others: ``ranks``, which may be empty if they are not known."""
    line = " ".join(why.split())[:_LONGEST]
    tell(f"follows {','.join(map(str, sorted(set(ranks))[:16])) or '-'} {line}")
