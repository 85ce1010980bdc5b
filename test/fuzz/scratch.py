"""Files for parsers that read files."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path


@functools.cache
def folder() -> Path:
    """Return a folder of this process, removed when the process ends."""
    memory = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(prefix="horovod-fuzz-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def file_of(name: str, data: bytes) -> Path:
    path = folder() / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path
