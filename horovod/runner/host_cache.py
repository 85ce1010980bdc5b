"""What was found out about hosts, remembered for 60 minutes in ~/.horovod/hosts.json (0600, folder 0700)."""

from __future__ import annotations

import json
import os
import stat
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

LIFETIME = 3600.0  # seconds


def default_folder() -> Path:
    return Path("~/.horovod").expanduser()


class HostCache:
    """Keys and JSON values. A file that is missing, damaged or not ours holds nothing, and is no error."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "hosts.json"

    def find(self, key: str) -> Any:
        """The value put within the last hour; None for none."""
        written, value = self._entries().get(key, (0.0, None))
        return value if 0 <= time.time() - written < LIFETIME else None

    def put(self, entries: dict[str, Any]) -> None:
        now = time.time()
        kept = {key: entry for key, entry in self._entries().items() if 0 <= now - entry[0] < LIFETIME}
        self._write({**kept, **{key: (now, value) for key, value in entries.items()}})

    def forget(self, keys: Iterable[str]) -> None:
        entries = self._entries()
        left = {key: entry for key, entry in entries.items() if key not in set(keys)}
        if left != entries:
            self._write(left)

    def _entries(self) -> dict[str, tuple[float, Any]]:
        try:
            with self._file.open() as file:
                status = os.fstat(file.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return {}
                content = json.load(file)
            return {str(key): (float(when), value) for key, (when, value) in content.items()}
        except (OSError, ValueError, TypeError, AttributeError, OverflowError, RecursionError):
            return {}

    def _write(self, entries: dict[str, tuple[float, Any]]) -> None:
        """Whole or not at all; where the folder cannot be written (no home, read-only) nothing is kept."""
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
            descriptor, name = tempfile.mkstemp(dir=self._folder, prefix=".hosts-")  # 0600
        except OSError:
            return
        try:
            with os.fdopen(descriptor, "w") as file:
                json.dump(entries, file)
            os.replace(name, self._file)
        except OSError:
            Path(name).unlink(missing_ok=True)
