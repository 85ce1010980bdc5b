"""What a rank's wrapper writes to its standard output: what the rank writes, and how it fares.

    record := kind:1 byte  length:4 bytes, big-endian  payload
    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...
            | "note" note | "busy" | "stopped" signal | "continued"

`told` is 1 when this rank had been told to end (SIGTERM and the like) before it did: then it is not the
culprit. `note`: the rank's own words, see `horovod.common.notes`. `stopped`: by SIGSTOP or the like. `busy`:
a rank that has left the job uses the processor.

Standard library only and few imports, as `wrapper`.
"""

from __future__ import annotations

from typing import NamedTuple

OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"
LONGEST = 1 << 20  # bytes of a payload; a wrapper reads, and passes on, less at once
_KINDS = OUTPUT + ERROR + REPORT + VALUE
_HEADER = 5


class Record(NamedTuple):
    kind: bytes
    payload: bytes


def record(kind: bytes, payload: bytes) -> bytes:
    return kind + len(payload).to_bytes(_HEADER - 1, "big") + payload


class RecordParser:
    """Splits what came from one wrapper."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Record]:
        """Those that are complete by now. ValueError for what is no record; the stream is of no use then."""
        self._buffer += data
        found, at = [], 0
        while len(self._buffer) - at >= _HEADER:
            kind = bytes(self._buffer[at : at + 1])
            length = int.from_bytes(self._buffer[at + 1 : at + _HEADER], "big")
            if kind not in _KINDS or length > LONGEST:
                raise ValueError(f"no record begins with {bytes(self._buffer[at : at + 40])!r}")
            end = at + _HEADER + length
            if len(self._buffer) < end:
                break
            found.append(Record(kind, bytes(self._buffer[at + _HEADER : end])))
            at = end
        del self._buffer[:at]
        return found
