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
import re

__all__ = ["VARIABLE", "follows_others", "is_stalled", "lost_ranks", "tell", "tell_of_failure"]

VARIABLE = "HOROVOD_RANK_NOTES"
_LONGEST = 300  # characters: a note is one cell, see horovod.runner.rank
_LOST = re.compile(r"\blost rank (\d+)")
_MISSING = re.compile(r"^(\d+)!?: \[", re.MULTILINE)  # of the stall inspector's list
_FOLLOWS = re.compile(
    r"\blost rank \d|Horovod has been shut down: this rank or another|a peer may have ended|Missing ranks:"
    # of gloo and NCCL, under torch.distributed
    r"|Connection (?:closed|reset) by|Broken pipe|remote process exited"
)
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


def follows_others(why: str) -> bool:
    """Whether an error's text says that the cause is another rank."""
    return _FOLLOWS.search(why) is not None


def lost_ranks(why: str) -> list[int]:
    """The ranks that an error's text says are lost."""
    return sorted({int(rank) for rank in _LOST.findall(why)})


def is_stalled(why: str) -> bool:
    """Whether an error's text says that ranks live, and have not asked for what others wait for."""
    return _MISSING.search(why) is not None


def tell_of_failure(why: str) -> None:
    """Note that this rank fails because of others, if the error's text says so."""
    if follows_others(why):
        ranks = sorted({int(rank) for rank in _LOST.findall(why) + _MISSING.findall(why)})
        line = " ".join(why.split())[:_LONGEST]
        tell(f"follows {','.join(map(str, ranks[:16])) or '-'} {line}")
