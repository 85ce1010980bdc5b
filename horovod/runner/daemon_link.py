"""Whether mpirun's daemon above a rank is cut off from mpirun. It may not notice for a quarter of an hour:
keep-alive says nothing while there is something to send, and ranks' output and signs of life are that.

Standard library only and few imports, as `rank`.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence

_DAEMONS = ("prted", "orted")  # mpirun itself notices in other ways
# Times that the kernel has sent something again without an answer: after 0.2 s, 0.4 s, ..., 6 s together.
_UNANSWERED = 5
_ASIDE = 20.0  # seconds
# Columns of /proc/net/tcp. Where the interface is down, what is sent again counts as a probe.
_STATE, _RETRANSMITS, _PROBES, _INODE, _ESTABLISHED = 3, 6, 8, 9, "01"


def unanswered(table: str, inodes: set[str]) -> bool:
    """Whether one of the connections in a table as /proc/net/tcp gets no answer any more."""
    rows = [line.split() for line in table.splitlines()[1:]]
    return any(is_unanswered(row) for row in rows if len(row) > _INODE and row[_INODE] in inodes)


def is_unanswered(row: Sequence[str]) -> bool:
    """Whether a connection, a row of such a table, gets no answer any more. False for a row of none."""
    if len(row) <= _INODE or row[_STATE] != _ESTABLISHED:
        return False
    return max(int(row[_RETRANSMITS], 16), int(row[_PROBES])) >= _UNANSWERED


class DaemonLink:
    """To be looked at every second or so. Ends the daemon when it is cut off, and with it the ranks here."""

    def __init__(self) -> None:
        self._daemon = os.getppid()
        self._signal = signal.SIGTERM

    def look(self) -> bool:
        """Whether there is such a daemon."""
        folder = f"/proc/{self._daemon}"
        try:
            with open(f"{folder}/comm", encoding="utf-8") as file:
                if file.read().strip() not in _DAEMONS:
                    return False
            inodes = set()
            for name in os.listdir(f"{folder}/fd"):
                inodes.add(os.readlink(f"{folder}/fd/{name}").removeprefix("socket:[").rstrip("]"))
            tables = []
            for name in ("tcp", "tcp6"):
                with open(f"{folder}/net/{name}", encoding="utf-8") as file:
                    tables.append(file.read())
            if any(unanswered(table, inodes) for table in tables):
                os.kill(self._daemon, self._signal)
                if self._signal == signal.SIGKILL:
                    self._remove_folder()
                self._signal = signal.SIGKILL  # if it is still there at the next look
        except OSError:
            return os.path.exists(folder)  # it has just ended, or closed a file
        return True

    def _remove_folder(self) -> None:
        """Of the daemon's session, which it would have removed in the end."""
        import shutil
        import tempfile

        for name in _DAEMONS:
            shutil.rmtree(f"{tempfile.gettempdir()}/{name}.{self._daemon}", ignore_errors=True)

    def look_from_aside(self) -> None:
        """Leave a process behind that looks until the daemon has ended: its last rank may be gone before."""
        if not self.look() or os.fork() != 0:
            return
        try:
            os.setsid()
            os.closerange(0, 256)
            until = time.monotonic() + _ASIDE
            while self.look() and time.monotonic() < until:
                time.sleep(0.5)
        finally:
            os._exit(0)  # of a copy of the wrapper
