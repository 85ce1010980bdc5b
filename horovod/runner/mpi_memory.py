"""Open MPI's files in /dev/shm, which stay when mpirun is killed and a rank with it, perhaps inside MPI_Init.

Standard library only and few imports, as `rank`.
"""

from __future__ import annotations

import contextlib
import os

_FOLDER = "/dev/shm"


def remove_abandoned(since: float) -> None:
    """Remove those that were made on this host after `since` and that nobody has mapped.

    Open MPI names them sm_segment.HOST.USER.JOB.LOCAL_RANK. Only ranks know their JOB, and can no longer be
    asked; a file of another job is one that somebody has mapped. Ranks map each other's, so all wrappers try
    all: the last finds them free.
    """
    prefix = f"sm_segment.{os.uname().nodename}.{os.geteuid()}."
    with contextlib.suppress(OSError):  # not Linux
        for path in [f"{_FOLDER}/{name}" for name in os.listdir(_FOLDER) if name.startswith(prefix)]:
            with contextlib.suppress(FileNotFoundError):  # removed by whoever made it
                if os.stat(path).st_mtime >= since and not _is_mapped(path):
                    os.unlink(path)


def _is_mapped(path: str) -> bool:
    line_end = f" {path}\n"
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/maps", encoding="utf-8", errors="replace") as file:
                    if any(line.endswith(line_end) for line in file):
                        return True
            except OSError:
                continue  # it has ended, or is another user's, who cannot map our files
    return False
