"""Folders in a host's memory in which commits outlive the processes that made them (``--elastic-restart``).

A folder belongs to one job on one host, and to one user: mode 0700, files 0600. Its *keeper* lives as long as
the job does on the host; without it the folder is useless:

    horovod-commits-UID-job-SECONDS-RANDOM       the agent of horovodrun made it then, and holds a lock on it
    horovod-commits-UID-by-NAMESPACE-PID-START   torchrun's agent, which knows nothing of it: that process

The next job of the user removes folders without a living keeper. torchrun's agent removes nothing, so its
folder also has a watcher, a process that waits for the agent's end: this file, run as a program.

    host_memory.py FOLDER

Linux; standard library only and few imports, because agents load it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Mapping

if __name__ == "__main__":  # run by its path, and isolated: sys.path lacks this package
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")))

from horovod.common import errors
from horovod.common.notes import ancestors, status_of

VARIABLE = "HOROVOD_COMMITS_FOLDER"  # an agent sets it for its workers
ROOT = "/dev/shm"
_RESTARTS, _RUN_ID = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"
_STARTED, _ENDED = 19, "Z"  # in status_of(): index of the start time; state of an unreaped process
_BY_LOCK, _BY_PROCESS = "job-", "by-"
_LOOKS_EVERY = 1.0  # seconds


def _prefix() -> str:
    return f"horovod-commits-{os.geteuid()}-"


class KeptFolder:
    """A folder that this process keeps. OSError without space for one, or without /dev/shm."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path, self._lock = self._made()

    @staticmethod
    def _made() -> tuple[str, int]:
        """Its path, and the descriptor whose lock marks it as kept, which children do not inherit."""
        while True:
            path = os.path.join(ROOT, f"{_prefix()}{_BY_LOCK}{time.time():.3f}-{os.urandom(8).hex()}")
            os.mkdir(path, 0o700)
            lock = _locked(path)
            if lock >= 0 and os.path.isdir(path):
                return path, lock
            if lock >= 0:  # another job removed it as abandoned before the lock was taken
                os.close(lock)

    def remove(self) -> None:
        """Remove the folder and its content. Idempotent."""
        _remove(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def began(path: str) -> float:
    """When a folder's horovodrun job began, in seconds since the epoch. ValueError for another folder."""
    parts = os.path.basename(path).removeprefix(f"{_prefix()}{_BY_LOCK}").split("-")
    if len(parts) != 2:
        raise errors.not_of_horovodrun(path=path)
    return float(parts[0])


def of_torchrun(environment: Mapping[str, str] = os.environ) -> str:
    """The folder of this worker's torchrun job on this host, created if missing.

    Workers of one agent get the same folder, also after a restart. ValueError if no such agent is found.
    """
    keeper = _agent_of_torchrun() if environment.get(_RUN_ID) else 0
    if not keeper:
        raise errors.nobody_restarts()
    remove_abandoned()
    path = os.path.join(ROOT, f"{_prefix()}{_BY_PROCESS}{_namespace()}-{keeper}-{_started(keeper)}")
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return path
    _have_watched(path)
    return path


def _have_watched(path: str) -> None:
    """Start a watcher. It is not a child of this process, and inherits nothing: peers must notice our end."""
    import subprocess

    nothing = subprocess.DEVNULL
    words = [sys.executable, "-I", "-S", __file__, path]
    # Without a watcher the folder is removed when the next job begins.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            words, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, timeout=30
        )


def _watch(path: str) -> None:
    """In the background, remove a folder when its keeper has ended. Ends when the folder is gone."""
    if os.fork():  # the parent returns, as its caller waits for it
        return
    keeper = os.path.basename(path).removeprefix(f"{_prefix()}{_BY_PROCESS}")
    while os.path.isdir(path):
        if _has_ended(keeper):
            _remove(path)
        else:
            time.sleep(_LOOKS_EVERY)


def checked(path: str) -> str:
    """The path. ValueError unless it is a folder, not a link, that only this user can enter."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise errors.unusable_commits(path=path, why=error.strerror) from None
    is_private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not is_private or found.st_uid != os.geteuid():
        raise errors.others_commits(path=path, user=os.geteuid())
    return path


def remove_abandoned() -> None:
    """Remove this user's folders on this host whose keeper is gone. Keep folders that cannot be judged."""
    with contextlib.suppress(OSError):  # no /dev/shm
        for name in os.listdir(ROOT):
            path, kind = os.path.join(ROOT, name), name.removeprefix(_prefix())
            if kind == name or not _is_ours(path):
                continue
            if kind.startswith(_BY_PROCESS):
                if _has_ended(kind.removeprefix(_BY_PROCESS)):
                    _remove(path)
            elif (lock := _locked(path)) >= 0:
                _remove(path)
                os.close(lock)


def _remove(path: str) -> None:
    import shutil  # slow to load, and rarely needed

    shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(checked(path))
    return False


def _locked(path: str) -> int:
    """A descriptor that holds the folder's lock; -1 if another process holds it, or the folder is gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return -1
    return descriptor


def _agent_of_torchrun() -> int:
    """The process that started this one's job here: the first ancestor without torchrun's variables.

    0 if there is none. A shell or another program in between is a part of the job.
    """
    for pid in ancestors():
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                told = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
        except OSError:
            return 0
        if _RESTARTS.encode() not in told:
            return pid
    return 0


def _started(pid: int) -> str:
    """The start time of a process, in ticks since boot: process ids are reused."""
    return status_of(pid)[_STARTED]


def _namespace() -> int:
    """The namespace of process ids: in another one the same ids mean other processes."""
    return os.stat("/proc/self/ns/pid").st_ino


def _has_ended(keeper: str) -> bool:
    """Whether the process NAMESPACE-PID-START has ended. False for another namespace."""
    try:
        namespace, pid, started = keeper.split("-")
        if int(namespace) != _namespace():
            return False
        status = status_of(int(pid))
        return status[_STARTED] != started or status[0] == _ENDED
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (ValueError, OSError):
        return False


if __name__ == "__main__":
    _watch(checked(sys.argv[1]))
