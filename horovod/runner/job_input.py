"""Standard input of a job: read here, and written to mpirun in frames for rank 0 (see `rank_input`)."""

from __future__ import annotations

import os
import select

from horovod.runner.rank_input import frame

FRAME_SIZE, WINDOW = 1 << 15, 1 << 18  # bytes at once, and ahead of what rank 0's command has taken
MESSAGE_SIZE = 4000  # so much Open MPI takes to another host, with the header of a frame, and no more at once


class JobInput:
    """Between our standard input, `source`, and mpirun's, `target`. Reads only what rank 0 has room for.

    `error` says why standard input could not be read, "" for no reason.
    """

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._target = target  # -1 when it is closed
        self._sent = self._taken = 0
        self._frame_size = self._window = 0  # nothing before rank 0 is there
        self._waiting = b""
        self._has_ended = False
        self.error = ""
        os.set_blocking(target, False)

    def wanted(self) -> dict[int, int]:
        """Descriptors to poll, and for what."""
        if self._target < 0:
            return {}
        if self._waiting:
            return {self._target: select.POLLOUT}
        has_room = self._sent - self._taken < self._window
        return {self._source: select.POLLIN} if has_room and self._may_read() else {}

    def _may_read(self) -> bool:
        """Not in the background of a terminal: reading there stops the job."""
        try:
            return not os.isatty(self._source) or os.tcgetpgrp(self._source) == os.getpgrp()
        except OSError:  # a terminal, and not ours
            return False

    def go_on(self, descriptor: int) -> None:
        """Do what a descriptor that was polled is ready for, unless rank 0 has been heard to read no more."""
        if self._target < 0:
            return
        if descriptor == self._source and not self._waiting:
            try:
                data = os.read(self._source, self._frame_size)
            except OSError as error:
                data, self.error = b"", os.strerror(error.errno or 0)
            self._waiting, self._sent = frame(data), self._sent + len(data)
            self._has_ended = not data
        try:
            self._waiting = self._waiting[os.write(self._target, self._waiting) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # mpirun is about to end
            self.close()
        if self._has_ended and not self._waiting:
            self.close()

    def begin(self, host: str, by_mpirun: bool = True) -> None:
        """Rank 0 has started, on this host."""
        is_whole = host == os.uname().nodename or not by_mpirun  # however much it is
        self._frame_size, self._window = (FRAME_SIZE, WINDOW) if is_whole else (MESSAGE_SIZE, 1)

    def take(self, taken: int) -> None:
        """Rank 0 says how much its command has taken; less than 0: it reads no more."""
        self._taken = taken
        if taken < 0:
            self.close()

    def close(self) -> None:
        if self._target >= 0:
            os.close(self._target)
            self._target = -1
