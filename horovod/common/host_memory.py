"""Folders in a host's memory where commits outlive the processes that made them (``--elastic-restart``).

A folder belongs to one job on one host, and to one user: mode 0700, files 0600. Its *keeper* is who lives as
long as the job does there, and it is of no use without:

    horovod-commits-UID-job-RANDOM               the agent of horovodrun made it, and holds a lock on it
    horovod-commits-UID-by-NAMESPACE-PID-START   torchrun's agent, which knows nothing of it: that process

Whoever begins a job removes folders of the same user whose keeper is gone. Linux; standard library only and
few imports: agents need it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Mapping

__all__ = ["ROOT", "VARIABLE", "KeptFolder", "checked", "of_torchrun", "remove_abandoned"]

VARIABLE = "HOROVOD_COMMITS_FOLDER"  # told by an agent to its workers
ROOT = "/dev/shm"
_RESTARTS, _RUN_ID = "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID"
_BY_LOCK, _BY_PROCESS = "job-", "by-"


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
            path = os.path.join(ROOT, f"{_prefix()}{_BY_LOCK}{os.urandom(8).hex()}")
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


def of_torchrun(environment: Mapping[str, str] = os.environ) -> str:
    """The folder of the job of torchrun that this process is a worker of, on this host; made if need be.

    Workers of one agent have the same, also after a restart. ValueError where no such agent is found.
    """
    keeper = _agent_of_torchrun() if environment.get(_RUN_ID) else 0
    if not keeper:
        raise ValueError(
            "no commits can be kept for processes that are started again: neither horovodrun "
            "--elastic-restart nor torchrun has started this one. Start it so, or unset "
            "HOROVOD_ELASTIC_RESTART."
        )
    remove_abandoned()
    path = os.path.join(ROOT, f"{_prefix()}{_BY_PROCESS}{_namespace()}-{keeper}-{_started(keeper)}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    return path


def checked(path: str) -> str:
    """The path again. ValueError unless it is a folder that only this user can enter, and no link to one."""
    try:
        found = os.lstat(path)
    except OSError as error:
        raise ValueError(f"the folder of commits {path} cannot be used: {error.strerror}") from None
    is_private = stat.S_ISDIR(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
    if not is_private or found.st_uid != os.geteuid():
        raise ValueError(
            f"{path} is no folder that user {os.geteuid()} alone can enter: commits are neither kept there "
            "nor read. Somebody else has made it: remove it, and start the job again."
        )
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
    return _status(pid)[19]


def _namespace() -> int:
    """Of process ids: another one has other processes under the same numbers."""
    return os.stat("/proc/self/ns/pid").st_ino


def _has_ended(keeper: str) -> bool:
    """Whether NAMESPACE-PID-START is no process any more. False for one of another namespace."""
    try:
        namespace, pid, started = keeper.split("-")
        return int(namespace) == _namespace() and _started(int(pid)) != started
    except (FileNotFoundError, ProcessLookupError):
        return True
    except (ValueError, OSError):
        return False
