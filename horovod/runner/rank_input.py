"""Standard input of rank 0: taken from mpirun in frames, given to the rank's command as a pipe that ends.

mpirun passes its standard input on to rank 0, but Open MPI 5 never says that it has ended, holds in memory
whatever the rank does not read, and on the way to another host loses what is more than a message at a time.
So horovodrun writes frames, and only so far ahead of what the rank's command has taken (see `job_input`).

    frame := length:4 bytes, big-endian   payload        length 0: the input has ended

Standard library only and few imports, as `rank`.
"""

from __future__ import annotations

import os

_PART = 1 << 15
_HEADER = 4


def frame(payload: bytes) -> bytes:
    """b"" makes the frame that ends the input."""
    return len(payload).to_bytes(_HEADER, "big") + payload


class RankInput:
    """Between mpirun's pipe, `source`, and the command's, `target`. Both are polled by the caller."""

    def __init__(self, source: int, target: int) -> None:
        self.source = source
        self.target = target  # -1 when it is closed
        self.taken = 0  # bytes that the command's pipe has taken
        self._frames = b""
        self._waiting = b""
        self._has_ended = False
        os.set_blocking(target, False)

    def is_waiting(self) -> bool:
        """Whether there is something that the command's pipe has no room for yet."""
        return self.target >= 0 and bool(self._waiting)

    def receive(self) -> bool:
        """Read from mpirun; False when nothing more can come."""
        try:
            data = os.read(self.source, 1 << 16)
        except OSError:  # none was given to this rank
            data = b""
        self._frames += data
        while len(self._frames) >= _HEADER and not self._has_ended:
            end = _HEADER + int.from_bytes(self._frames[:_HEADER], "big")
            if len(self._frames) < end:
                break
            self._has_ended = end == _HEADER
            self._waiting += self._frames[_HEADER:end]
            self._frames = self._frames[end:]
        self._has_ended |= not data
        self.give()
        return not self._has_ended and self.target >= 0

    def give(self) -> None:
        """Write what the command's pipe has room for; close it after the last byte, or when nobody reads."""
        if self.target < 0:
            return
        try:
            while self._waiting:
                count = os.write(self.target, self._waiting[:_PART])
                self.taken += count
                self._waiting = self._waiting[count:]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._waiting, self._has_ended = b"", True
        if self._has_ended:
            self.close()

    def close(self) -> None:
        if self.target >= 0:
            os.close(self.target)
            self.target = -1
