"""The messages between horovod.run and its ranks. Standard library only: every rank and agent imports it.

A payload is a file that the ranks of a host read: the function with its arguments, and the key that signs
results. It reaches other hosts by ssh, and lies in a folder that only its owner can enter. Each result is
signed with HMAC-SHA256 and verified before unpickling, because programs that a function starts could write
to the rank's descriptors.

    payload := key:32 bytes  length of header:8  header (JSON)  function (pickle)
    result := signature:32 bytes  kind:1  body          signature: of rank:8, kind and body
    kind   := "R" (body: pickled return value) | "E" (body: JSON of the exception: see `function_rank`)

In an elastic job the rank is a worker's number. A body begins with the worker's place in its last
membership, generation:8 rank:8 (without a membership: generation 0 and the rank of its start). There is
another kind, "O" (nothing follows the place): the job removed the worker, which had to end.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import shutil
import stat
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

KEY_SIZE = SIGNATURE_SIZE = 32
RETURNED, RAISED, OUT = b"R", b"E", b"O"
PLACE = struct.Struct(">QQ")  # generation and rank, with which bodies begin in elastic jobs
_FILE = "payload"


def packed(key: bytes, header: dict[str, Any], function: bytes) -> bytes:
    text = json.dumps(header).encode()
    return b"".join((key, len(text).to_bytes(8, "big"), text, function))


def unpacked(payload: bytes) -> tuple[bytes, dict[str, Any], memoryview]:
    """Return (key, header, pickled function). ValueError for a malformed payload."""
    start = KEY_SIZE + 8
    end = start + int.from_bytes(payload[KEY_SIZE:start], "big")
    try:
        header = json.loads(payload[start:end])
    except (ValueError, RecursionError):
        header = None
    path = header.get("path") if isinstance(header, dict) else None
    is_path = isinstance(path, list) and all(isinstance(folder, str) for folder in path)
    if end > len(payload) or not is_path:
        raise ValueError(f"the payload of {len(payload)} bytes is damaged; start the job again")
    return payload[:KEY_SIZE], header, memoryview(payload)[end:]


def signature(key: bytes, rank: int, kind: bytes, body: bytes | memoryview) -> bytes:
    code = hmac.new(key, rank.to_bytes(8, "big") + kind, "sha256")
    code.update(body)
    return code.digest()


def verified(key: bytes, rank: int, result: bytes | memoryview) -> tuple[bytes, memoryview] | None:
    """Return (kind, body) of a result that this rank signed; None for anything else."""
    view = memoryview(result)
    kind, body = bytes(view[SIGNATURE_SIZE : SIGNATURE_SIZE + 1]), view[SIGNATURE_SIZE + 1 :]
    if kind not in (RETURNED, RAISED, OUT):
        return None
    genuine = hmac.compare_digest(view[:SIGNATURE_SIZE], signature(key, rank, kind, body))
    return (kind, body) if genuine else None


def fresh_name() -> str:
    """Return an unpredictable name for a payload."""
    return f"horovod-run-{secrets.token_hex(16)}"


@contextlib.contextmanager
def stored(name: str, payload: bytes) -> Iterator[Path]:
    """Keep the payload on this host while the context lasts."""
    folder = Path(tempfile.gettempdir()) / name
    # The folder may exist: hosts may share the temporary folder, or two names may be one host.
    folder.mkdir(mode=0o700, exist_ok=True)
    _check_owner(folder)
    try:
        descriptor, own = tempfile.mkstemp(dir=folder)
        with os.fdopen(descriptor, "wb") as file:
            file.write(payload)
        os.replace(own, folder / _FILE)
        yield folder / _FILE
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def found(name: str) -> bytes:
    """Return the payload of this name. FileNotFoundError; PermissionError if its folder is not private."""
    # TMPDIR may differ between the agent that stored the payload and the rank.
    for folder in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):
        path = Path(folder) / name
        if (path / _FILE).exists():
            _check_owner(path)
            return (path / _FILE).read_bytes()
    raise FileNotFoundError(f"{name} is in none of the folders for temporary files of {os.uname().nodename}")


def _check_owner(folder: Path) -> None:
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{folder} is no folder that only this user can enter")
