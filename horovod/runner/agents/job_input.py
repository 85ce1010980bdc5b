"""Standard input of a job: read here, as far ahead as rank 0's command takes it."""

from __future__ import annotations

import os

PART, WINDOW = 1 << 15, 1 << 18  # bytes at once, and ahead of what is in the pipe of rank 0's command


class JobInput:
    """Reads only what rank 0 has room for. `error`: why standard input cannot be read, "" if it can."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._sent = self._taken = 0
        self._is_over = False
        self.error = ""

    def wanted(self) -> int:
        """The descriptor to poll for input; -1 for none now."""
        has_room = self._sent - self._taken < WINDOW
        return self._source if not self._is_over and has_room and self._may_read() else -1

    def _may_read(self) -> bool:
        """Not in the background of a terminal: reading there stops the job."""
        try:
            return not os.isatty(self._source) or os.tcgetpgrp(self._source) == os.getpgrp()
        except OSError:  # a terminal, and not ours
            return False

    def read(self) -> bytes:
        """What is there now, b"" for the end."""
        try:
            data = os.read(self._source, PART)
        except OSError as error:
            data, self.error = b"", os.strerror(error.errno or 0)
        self._sent += len(data)
        self._is_over = not data
        return data

    def take(self, taken: int) -> None:
        """So much is in the pipe of rank 0's command; less than 0: it reads no more."""
        self._taken = taken
        self._is_over |= taken < 0
