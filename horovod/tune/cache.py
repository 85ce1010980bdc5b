"""Results of tuning, kept for the next job: readable JSON files in ``~/.cache/horovod/tune``.

Rank 0 alone reads and writes them. A file holds one workload: its complete key, the chosen settings, and the
figures that decided.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from horovod.tune import errors

__all__ = ["Cache", "Key", "Stored"]

FORMAT = 1
_LOCK_ATTEMPTS = 100
_GOES_ON = "this job is tuned as if there were none, and what is found replaces it"
MOST_BYTES = 1 << 20  # bytes of a file that is read
# Names of the cache's files: HOROVOD_AUTOTUNE_CACHE may name a folder with other files.
_KEPT = r"[0-9a-f]{16}\.json"
_BEGIN, _END = "horovod-tune-", ".tmp"  # of the name of a file that is being written


@dataclass(frozen=True)
class Key:
    """The workload. Results are valid for no other."""

    machine: str  # processor, GPU, speeds of networks
    model: str  # digest of parameters' shapes and dtypes
    model_name: str
    world: str  # ranks and hosts, and the transport between them
    versions: str  # this package's and torch's
    face: str  # "optimizer" or "ddp", and the compression

    def digest(self) -> str:
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Stored:
    """A file's content."""

    key: Key
    settings: dict[str, str]
    figures: dict[str, Any]


class Cache:
    """The folder. An unreadable file counts as absent, with one warning; a failed write is a warning."""

    def __init__(self, folder: Path, warn: Callable[[str], object]) -> None:
        self.folder, self._warn = folder, warn

    @staticmethod
    def usual_folder(environment: Mapping[str, str]) -> Path:
        """Return ``HOROVOD_AUTOTUNE_CACHE``, or a folder in the user's cache folder."""
        if own := environment.get("HOROVOD_AUTOTUNE_CACHE", "").strip():
            return Path(own).expanduser()
        base = environment.get("XDG_CACHE_HOME", "").strip() or "~/.cache"
        return Path(base).expanduser() / "horovod" / "tune"

    def path(self, key: Key) -> Path:
        return self.folder / f"{key.digest()}.json"

    def find(self, key: Key) -> Stored | None:
        path = self.path(key)
        try:
            stored = self._read(path)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            self._warn(f"{path} is not used: {error}; {_GOES_ON}")
            return None
        if stored.key != key:
            self._warn(f"{path} is not used: it is of another workload; {_GOES_ON}")
            return None
        return stored

    def all(self) -> list[Stored]:
        """Return all readable workloads, in the order of file names."""
        found = []
        for path in self._files(_KEPT):
            try:
                found.append(self._read(path))
            except (OSError, ValueError) as error:
                self._warn(f"{path}: {error}")
        return found

    def keep(self, stored: Stored) -> bool:
        """Write it atomically. If jobs write at the same time, the last one's stays."""
        text = json.dumps({"format": FORMAT, **asdict(stored)}, indent=1) + "\n"
        try:
            self._write(self.path(stored.key), text)
        except OSError as error:
            self._warn(f"what was tuned is not kept for the next job: {error}")
            return False
        return True

    def clear(self) -> int:
        """Remove the cache's files, and no others; return their number. OSError if one cannot be removed."""
        if not self.folder.is_dir():
            return 0
        with self._locked():
            files = self._files(rf"{_KEPT}|{_BEGIN}.*\{_END}")
            for path in files:
                path.unlink(missing_ok=True)
        return len(files)

    def _files(self, names: str) -> list[Path]:
        """Return the folder's files whose names match, sorted. OSError if the folder cannot be read."""
        if not self.folder.is_dir():
            return []
        found = (path for path in self.folder.iterdir() if re.fullmatch(names, path.name))
        return sorted(path for path in found if path.is_symlink() or not path.is_dir())

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the folder's lock inside the block. OSError if another process has it.

        OSError also if the lock is a symbolic link, through which a file elsewhere could be made or locked.
        """
        # Non-blocking: opening a pipe in its place would wait for a reader.
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_NOFOLLOW
        path = self.folder / "lock"
        try:
            lock = os.open(path, flags, 0o666)
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
            raise errors.symbolic_link(path=str(path)) from None
        try:
            _lock(lock)
            yield
        finally:
            os.close(lock)

    def _write(self, path: Path, text: str) -> None:
        """Write atomically, and leave nothing on failure. The lock is not held while a slow disk writes."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(
            "w", dir=self.folder, prefix=_BEGIN, suffix=_END, delete=False
        ) as file:
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                with self._locked():
                    os.replace(file.name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(file.name)
                raise

    def _read(self, path: Path) -> Stored:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise errors.no_regular_file()
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise errors.too_many_bytes(most=MOST_BYTES)
        try:
            data = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise errors.no_json(why=str(error)) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise errors.other_format()
        key, settings, figures = data.get("key"), data.get("settings"), data.get("figures")
        texts = [part for part in (key, settings) if isinstance(part, dict) and _is_text(part)]
        if len(texts) != 2 or set(texts[0]) != set(Key.__dataclass_fields__) or not isinstance(figures, dict):
            raise errors.lacking_parts()
        return Stored(Key(**texts[0]), dict(texts[1]), figures)


def _without_waiting(path: str, flags: int) -> int:
    """Open without blocking, as opening a pipe would wait for a writer."""
    return os.open(path, flags | os.O_NONBLOCK)


def _lock(descriptor: int) -> None:
    """OSError if another process holds it for longer than a write takes, as training does not wait."""
    for _ in range(_LOCK_ATTEMPTS):
        with contextlib.suppress(BlockingIOError):
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        time.sleep(0.01)
    raise errors.folder_locked()


def _is_text(part: dict[Any, Any]) -> bool:
    return all(isinstance(name, str) and isinstance(value, str) for name, value in part.items())
