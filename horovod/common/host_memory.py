"""Folders in a host's memory where commits outlive the processes that made them (``--elastic-restart``).

A folder belongs to one job on one host, and to one user: mode 0700, files 0600. Its *keeper* is who lives as
long as the job does there, and it is of no use without:

    horovod-commits-UID-job-SECONDS-RANDOM       the agent of horovodrun made it then, and holds a lock on it
    horovod-commits-UID-by-NAMESPACE-PID-START   torchrun's agent, which knows nothing of it: that process

Whoever begins a job removes folders of the same user whose keeper is gone. torchrun's agent removes nothing,
so its folder has a watcher too, a process that waits for the agent's end: this file, run as a program.

    host_memory.py FOLDER

Linux; standard library only and few imports: agents need it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import time
from collections.abc import Mapping

if __name__ == "__main__":  # by its path, and isolated: nothing leads to this package
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")))

from horovod.common import errors

__all__ = ["ROOT", "VARIABLE", "KeptFolder", "began", "checked", "of_torchrun", "remove_abandoned"]

VARIABLE = "HOROVOD_COMMITS_FOLDER"  # told by an agent to its workers
ROOT = "/dev/shm"
_RESTARTS, _RUN_ID = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"
_STARTED, _ENDED = 19, "Z"  # of what _status() returns: where, and the state of who is not waited for so far
_BY_LOCK, _BY_PROCESS = "job-", "by-"
_LOOKS_EVERY = 1.0  # seconds


def _prefix() -> str:
    return f"horovod-commits-{os.geteuid()}-"


class KeptFolder:
    """A folder that this process keeps. OSError where there is no room for one, or no /dev/shm."""

    def __init__(self) -> None:
        remove_abandoned()
        self.path, self._lock = self._made()

    @staticmethod
    def _made() -> tuple[str, int]:
        """Its path, and the descriptor whose lock says that it is kept. Not inherited."""
        while True:
            path = os.path.join(ROOT, f"{_prefix()}{_BY_LOCK}{time.time():.3f}-{os.urandom(8).hex()}")
            os.mkdir(path, 0o700)
            lock = _locked(path)
            if lock >= 0 and os.path.isdir(path):
                return path, lock
            if lock >= 0:  # somebody took it for an abandoned one before it was locked
                os.close(lock)

    def remove(self) -> None:
        """With all that is in it. Harmless when repeated."""
        _remove(self.path)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def began(path: str) -> float:
    """When the job of horovodrun's that a folder belongs to began on this host: seconds since the epoch.

    ValueError for another folder.
    """
    parts = os.path.basename(path).removeprefix(f"{_prefix()}{_BY_LOCK}").split("-")
    if len(parts) != 2:
        raise errors.not_of_horovodrun(path=path)
    return float(parts[0])


def of_torchrun(environment: Mapping[str, str] = os.environ) -> str:
    """The folder of the job of torchrun that this process is a worker of, on this host; made if need be.

    Workers of one agent have the same, also after a restart. ValueError where no such agent is found.
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
    """Start a watcher. It belongs to nobody here, and inherits nothing: peers must notice when we end."""
    import subprocess

    nothing = subprocess.DEVNULL
    words = [sys.executable, "-I", "-S", __file__, path]
    # Without a watcher the folder goes when the next job begins.
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            words, cwd="/", stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True, timeout=30
        )


def _watch(path: str) -> None:
    """In the background: remove a folder when its keeper has ended. Ends when the folder is gone."""
    if os.fork():  # whoever started this waits for it no longer
        return
    keeper = os.path.basename(path).removeprefix(f"{_prefix()}{_BY_PROCESS}")
    while os.path.isdir(path):
        if _has_ended(keeper):
            _remove(path)
        else:
            time.sleep(_LOOKS_EVERY)


def checked(path: str) -> str:
    """The path again. ValueError unless it is a folder that only this user can enter, and no link to one."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise errors.unusable_commits(path=path, why=error.strerror) from None
    is_private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not is_private or found.st_uid != os.geteuid():
        raise errors.others_commits(path=path, user=os.geteuid())
    return path


def remove_abandoned() -> None:
    """Remove this user's folders on this host whose keeper is gone. What cannot be judged stays."""
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
    import shutil  # loads a lot, for those that need it only

    shutil.rmtree(path, ignore_errors=True)


def _is_ours(path: str) -> bool:
    with contextlib.suppress(ValueError):
        return bool(checked(path))
    return False


def _locked(path: str) -> int:
    """A descriptor that holds the folder's lock; -1 where somebody else does, or it is gone."""
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
    """The process that has started this one's job here: the first above that has not been told its run.

    0 where there is none. A shell or another program between is a part of the job.
    """
    pid = os.getppid()
    while pid > 1:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                told = {entry.partition(b"=")[0] for entry in file.read().split(b"\0")}
        except OSError:
            return 0
        if _RESTARTS.encode() not in told:
            return pid
        pid = int(_status(pid)[1])
    return 0


def _status(pid: int) -> list[str]:
    """State, parent and so on, as proc(5) has them after the command. OSError: there is no such process."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def _started(pid: int) -> str:
    """When, in ticks since the host's start: a process id may come again."""
    return _status(pid)[_STARTED]


def _namespace() -> int:
    """Of process ids: another one has other processes under the same numbers."""
    return os.stat("/proc/self/ns/pid").st_ino


def _has_ended(keeper: str) -> bool:
    """Whether NAMESPACE-PID-START is no process any more. False for one of another namespace."""
    try:
        namespace, pid, started = keeper.split("-")
        if int(namespace) != _namespace():
            return False
        status = _status(int(pid))
        return status[_STARTED] != started or status[0] == _ENDED
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (ValueError, OSError):
        return False


if __name__ == "__main__":
    _watch(checked(sys.argv[1]))
