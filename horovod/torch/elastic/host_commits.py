"""Commits in a host's memory, for restarted processes, written and read with torch alone.

    commit-STATE-NUMBER.pt     STATE: 0 for the first state of a process that hvd.elastic.run gets, and so on

A file gets this name when it is complete. It has mode 0600, and is read with ``weights_only=True``: it can
hold tensors and plain values, and nothing in it is executed.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import os
import pickle
import re
import shutil
import stat
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from horovod.common.commits import KEPT, Commits
from horovod.torch import errors

_VERSION = 2  # of the files' content
_OF_DAMAGE = (  # errors of torch.load for a file that is not a commit
    ValueError, pickle.UnpicklingError, EOFError, RuntimeError, LookupError, TypeError, AttributeError
)  # fmt: skip
_DONE = "done-"  # prefix of the mark of a rank that has ended without error
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.Size, torch.dtype, torch.device)
_log = logging.getLogger("horovod")


class HostCommits(Commits):
    """Commits whose newest are also in a folder.

    Args:
        folder: of this host's commits of the job.
        state: number of the state in its process, from 0.
        names: of the attributes in commits. Files with other names are not read.
        writes: () -> whether this process writes files: one rank of each host does.
        gives_up: called once with the reason if the folder cannot be used; then these are plain Commits. With
            None, that is an error.
    """

    def __init__(
        self,
        folder: str,
        state: int,
        names: list[str],
        writes: Callable[[], bool],
        gives_up: Callable[[str], None] | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._pattern = re.compile(rf"commit-{state}-(\d{{1,18}})\.pt")
        self._stem = f"commit-{state}-"
        self._names = names
        self._writes = writes
        self._gives_up = gives_up
        self._has_given_up = False

    def put(self, number: int, content: Any) -> None:
        """Like Commits. TypeError names values that a file cannot hold; OSError reports the memory needed."""
        with self._or_without_files():
            if self._writes_files():
                self._write(number, content)
                for old in sorted(self._files())[:-KEPT]:
                    os.unlink(self._path(old))
        super().put(number, content)

    def forget_after(self, number: int) -> None:
        """Like Commits. Newer files are removed too."""
        with self._or_without_files():
            if self._writes_files():
                for each in [each for each in self._files() if each > number]:
                    os.unlink(self._path(each))
        super().forget_after(number)

    def _writes_files(self) -> bool:
        return not self._has_given_up and self._writes()

    @contextlib.contextmanager
    def _or_without_files(self) -> Iterator[None]:
        """On a failure inside, remove the files and stop using the folder, unless it is required."""
        try:
            yield
        except (TypeError, OSError, ValueError) as error:
            if self._gives_up is None:
                raise
            self._has_given_up = True
            with contextlib.suppress(OSError):  # the folder itself may be gone
                for each in self._files():
                    os.unlink(self._path(each))
            self._gives_up(str(error))

    def find(self) -> bool:
        """Load the commits of the folder; return whether there are any. Removes other files, with a warning.

        MemoryError, OSError: a file cannot be read, and stays.
        """
        for name in os.listdir(self._folder):
            if name.endswith(".part") or name.startswith(_DONE):  # of processes that have ended
                os.unlink(os.path.join(self._folder, name))
        found = {}
        for number in sorted(self._files()):
            try:
                found[number] = self._read(number)
            except _OF_DAMAGE as error:
                if "can't allocate memory" in str(error):  # torch reports it by a RuntimeError
                    raise errors.commit_unreadable(path=self._path(number), why=str(error)) from error
                _log.warning(
                    "horovod: %s is no commit of this job, and is ignored: %s", self._path(number), error
                )
                with contextlib.suppress(OSError):  # of another user
                    os.unlink(self._path(number))
        for number, (generation, content) in list(found.items())[-KEPT:]:
            self._contents[number], self._generations[number] = content, generation
        return bool(found)

    def _files(self) -> list[int]:
        matches = map(self._pattern.fullmatch, os.listdir(self._folder))
        return [int(match[1]) for match in matches if match]

    def _path(self, number: int) -> str:
        return os.path.join(self._folder, f"{self._stem}{number}.pt")

    def _write(self, number: int, content: Any) -> None:
        wrong = first_unreadable(content)
        if wrong is not None:
            raise errors.not_plain(where=wrong)
        record = {
            "version": _VERSION,
            "number": number,
            "generation": self.generation,
            "names": self._names,
            "content": content,
        }
        aside = os.path.join(self._folder, f"{self._stem}{number}-{os.getpid()}.part")
        try:
            descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                torch.save(record, file)
            os.rename(aside, self._path(number))
        except (OSError, RuntimeError) as error:  # torch's, if the memory is full
            with contextlib.suppress(OSError):
                os.unlink(aside)
            free = shutil.disk_usage(self._folder).free / 1e6
            raise errors.commit_not_kept(
                number=number, path=self._folder, free=free, why=str(error)
            ) from error

    def _read(self, number: int) -> tuple[int, Any]:
        """Return a commit's generation and content.

        ValueError, or torch's errors, for a file that is not a commit of this user.
        """
        try:
            descriptor = os.open(self._path(number), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise ValueError("it is a link") from None
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            is_private = stat.S_ISREG(found.st_mode) and not stat.S_IMODE(found.st_mode) & 0o077
            if not is_private or found.st_uid != os.geteuid():
                raise ValueError("it is not this user's, or others may open it")
            record = torch.load(file, map_location="cpu", weights_only=True)
        said = (record.get("version"), record.get("number")) if isinstance(record, dict) else ()
        if said != (_VERSION, number) or type(record.get("generation")) is not int:
            raise ValueError("it holds something else")
        if record.get("names") != self._names:
            raise ValueError(f"it has {record.get('names')}, and the state has {self._names}")
        return record["generation"], record["content"]


def first_unreadable(content: Any) -> str | None:
    """Return the name and class of a value that torch.load(weights_only=True) would not read, or None."""
    parts = (unreadable(content[part], "state") for part in ("objects", "handlers"))
    return next(itertools.chain.from_iterable(parts), None)


def unreadable(value: Any, name: str) -> Iterator[str]:
    """Yield all parts of a value that could not be read."""
    kind = type(value)
    if kind in _PLAIN or kind in (torch.Tensor, torch.nn.Parameter):
        return
    if kind in (dict, OrderedDict):
        for key, each in value.items():
            yield from unreadable(key, f"the key {key!r} of {name}")
            yield from unreadable(each, f"{name}.{key}" if isinstance(key, str) else f"{name}[{key!r}]")
    elif kind in (list, tuple, set):
        for number, each in enumerate(value):
            yield from unreadable(each, f"{name}[{number}]")
    elif kind not in torch.serialization.get_safe_globals():
        yield f"{name} ({kind.__module__}.{kind.__qualname__})"


def forget_when_all_are_done(folder: str, local_rank: int, local_size: int) -> None:
    """Note that this rank has ended without error. The host's last such rank removes the commits."""
    with contextlib.suppress(OSError):  # another rank has removed the folder
        open(os.path.join(folder, f"{_DONE}{local_rank}"), "w").close()
        if sum(name.startswith(_DONE) for name in os.listdir(folder)) >= local_size:
            shutil.rmtree(folder, ignore_errors=True)
