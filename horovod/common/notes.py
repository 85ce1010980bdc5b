"""Notes from a rank to its wrapper: the exit code alone does not show which rank is to blame.

The wrapper opens a pipe and names it in VARIABLE: `descriptor:device:inode`. A process without that pipe, as
without horovodrun, writes nothing.

    note := "joining" | "joined" | "outside " N | "inside " N | "leaving" | "done" | "follows " RANKS " " WHY
            | "uses " WHAT | "traffic " N " " GIVEN " " SENT " " WAITED " " LASTED " " PLACE, and a newline

`joining`, `joined`: hvd.init() begins, has ended. `leaving`: the interpreter ends, before other ranks notice.
`outside`, `inside`: the Nth hvd.shutdown() has left the job, and hvd.init() has joined another. `done`: the
interpreter has left the job, and run all exit actions of scripts: MPI_Finalize() may wait for others.
`follows`: an operation failed because of other ranks: RANKS, as 1,3, or - if unknown.

Two are for the last lines of horovodrun; any process of the rank may write them. `uses`: it has called
hvd.init() ("hvd"), or wrapped a model in DDP with compressed gradients ("ddp"). `traffic`: the process leaves
its Nth job, in which it gave GIVEN bytes to sums, sent them as SENT, and waited WAITED of LASTED
microseconds; PLACE is "gpu" if tensors were on one, else "host".
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

VARIABLE = "HOROVOD_RANK_NOTES"
_LONGEST = 300  # characters of a reason
_told: set[str] = set()


def tell(note: str) -> None:
    """Write a note, once."""
    _tell(note, ["self"])


def tell_from_below(note: str) -> None:
    """Write a note, once. Uses the pipe of an ancestor if this process has not inherited the rank's pipe."""
    _tell(note, ["self", *ancestors()])


def _tell(note: str, processes: Iterable[int | str]) -> None:
    """Write into the pipe of the first of these processes that has it."""
    text = os.environ.get(VARIABLE, "")
    if not text or note in _told:
        return
    descriptor, *pipe = map(int, text.split(":"))
    for process in processes:
        path = f"/proc/{process}/fd/{descriptor}"
        try:
            status = os.stat(path)
            if [status.st_dev, status.st_ino] == pipe:
                _told.add(note)
                with open(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb", buffering=0) as file:
                    file.write(f"{note}\n".encode(errors="replace"))
                return
        except OSError:
            continue  # not inherited, or of another user; or horovodrun is gone


def ancestors() -> Iterator[int]:
    process = os.getppid()
    while process > 1:
        yield process
        process = int(status_of(process)[1])


def status_of(process: int) -> list[str]:
    """State, parent and so on, as in proc(5) after the command. OSError if the process does not exist."""
    with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def tell_of_failure(why: str, ranks: Iterable[int]) -> None:
    """Note that this rank fails because of other ``ranks``, which may be empty if they are unknown."""
    line = " ".join(why.split())[:_LONGEST]
    tell(f"follows {','.join(map(str, sorted(set(ranks))[:16])) or '-'} {line}")
