"""Ranks that meet in a folder that all of them see, if nothing else connects them.

Files appear whole, by renaming. A rank that waits for a file lists the whole folder repeatedly: this makes a
network file system notice files of other hosts. The folder is private to the user, because its files contain
addresses and secrets.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from horovod.common import errors
from horovod.common.launched import Launch
from horovod.common.options import BY_VARIABLE
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of
from horovod.common.sentences import facts_of

__all__ = ["FolderRendezvous", "FolderStore", "by_folder"]

_MOST_BYTES = 2 << 20  # of a file
_FRESH = 0.01  # seconds for which one listing serves all callers
_IN_THE_MAKING = "."


class FolderStore:
    """A store whose keys are files. ValueError for a folder that is missing, or that others may write in."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self._listed: set[str] = set()
        self._listed_at = 0.0
        if not self.folder.is_absolute():
            raise errors.relative_folder(path=folder)
        try:
            with contextlib.suppress(FileExistsError):
                self.folder.mkdir(mode=0o700)
            status = self.folder.stat()
        except OSError as error:
            raise errors.unusable_folder(path=folder, why=str(error)) from None
        if not stat.S_ISDIR(status.st_mode):
            raise errors.no_folder(path=folder)
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise errors.open_folder(path=folder)

    def set(self, key: str, value: bytes) -> None:
        path = self._path(key)
        making = path.with_name(f"{_IN_THE_MAKING}{secrets.token_hex(8)}")
        with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(value)
        making.rename(path)

    def get(self, key: str) -> bytes | None:
        """The value; None if it is missing, or removed."""
        try:
            with open(self._path(key), "rb") as file:
                return file.read(_MOST_BYTES)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):  # on NFS: the name has another file now
                raise
            return None

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys exist, or did a moment ago."""
        names = {self._path(key).name for key in keys}
        if not names <= self._listed and time.monotonic() - self._listed_at > _FRESH:
            self._listed, self._listed_at = set(os.listdir(self.folder)), time.monotonic()
        return names <= self._listed

    def forget(self, prefix: str) -> None:
        """Remove all keys with a prefix, also those left by earlier jobs."""
        for name in os.listdir(self.folder):
            if name.startswith(quote(prefix, safe="")):
                with contextlib.suppress(FileNotFoundError):
                    (self.folder / name).unlink()

    def _path(self, key: str) -> Path:
        return self.folder / quote(key, safe="")


class FolderRendezvous(StoreRendezvous):
    """A meeting in a folder; at the end rank 0 removes its files."""

    def done(self) -> None:
        store = self._store
        if self.rank == 0 and isinstance(store, FolderStore):
            with contextlib.suppress(OSError):  # the job has begun, and needs them no more
                store.forget(self.prefix)


def by_folder(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> FolderRendezvous:
    """The meeting in HOROVOD_RENDEZVOUS_FOLDER. ValueError as FolderStore."""
    option = BY_VARIABLE["HOROVOD_RENDEZVOUS_FOLDER"]
    folder: str = option.read(environment)
    try:
        store = FolderStore(folder)
    except ValueError as error:
        raise errors.in_no_folder(**facts_of(error, setting=option.variable, path=folder)) from None
    assignment = assignment_of(launch.rank, launch.size, ranks)
    return FolderRendezvous(store, assignment, f"the folder {folder}", job=launch.job(environment))
