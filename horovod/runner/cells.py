"""The cells in which what a rank writes and reports comes through mpirun, whole and with its rank.

In an elastic job, where ranks change, the number in a cell is that of the worker, which nobody else gets.

Everything goes through standard error, where every mpirun we know (Open MPI 4 and 5, MPICH, Intel MPI) keeps
a pipe and passes on what it read, in blocks of at most 4 or 64 KiB, in order per rank. Standard output would
not do: Open MPI puts a terminal there, which splits anywhere. Blocks of different ranks alternate, so a line
may be torn apart. A cell is not: cells have 512 bytes, and at most 4096 bytes are written at once, which a
pipe takes as a whole (PIPE_BUF); so every block that is read is a whole number of cells.

    cell   := magic rank:7 digits  kind:1  length:3 digits  payload  spaces up to 511 bytes  newline
    magic  := 0x02 "hvd" NONCE                   NONCE: 12 hexadecimal digits, fresh for each job
    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...
            | "note" note | "alive" | "stopped" signal | "continued" | "took" bytes
            | "lost" host | "unreported" signal | "named" label | "gone" | "over" text

`told` is 1 when this rank had been told to end (SIGTERM and the like) before it did: then it is not the
culprit. `note`: the rank's own words, see `horovod.common.notes`. `alive`: of one rank on each host, every
second. `stopped`: by SIGSTOP or the like. `took`: of rank 0, how much of its standard input its command has
taken; -1 for no more (see `rank_input`). `lost`, `unreported`: of the driver of `agents`, in the name of a
rank whose host is gone, or whose wrapper was killed. `named`, `gone`, `over`: of the same, in elastic jobs:
what stands before a worker's output; there is no more of it; a part of why the job ends (see `agents.job`).

In payloads the bytes 0x0A (newline) and 0x1E are swapped, because Open MPI 5 spends a buffer of 4 KiB and a
write of its own on every line that it passes on.
"""

from __future__ import annotations

CELL_SIZE = 512
BLOCK_SIZE = 4096  # PIPE_BUF of Linux: written as a whole
OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"

_EXCHANGE = bytes.maketrans(b"\n\x1e", b"\x1e\n")


def magic(nonce: str) -> bytes:
    return b"\x02hvd" + nonce.encode()


def header_size(nonce: str) -> int:
    return len(magic(nonce)) + 7 + 1 + 3


def swapped(payload: bytes) -> bytes:
    """With newlines swapped as cells have them; its own inverse."""
    return payload.translate(_EXCHANGE)


def cells(nonce: str, rank: int, kind: bytes, payload: bytes) -> bytes:
    """The payload as a whole number of cells."""
    capacity = CELL_SIZE - 1 - header_size(nonce)
    head = magic(nonce) + b"%07d" % rank + kind
    payload = swapped(payload)
    parts = (payload[start : start + capacity] for start in range(0, len(payload), capacity))
    return b"".join((head + b"%03d" % len(part) + part).ljust(CELL_SIZE - 1) + b"\n" for part in parts)
