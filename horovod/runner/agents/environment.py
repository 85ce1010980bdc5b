"""The environment of ranks: it travels to their agents through ssh's own channel, where nobody reads it.

    packed := variables (NAME=VALUE, each ended by a zero byte)

Standard library only and few imports, as `agent`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping


def packed(variables: Mapping[bytes, bytes]) -> bytes:
    return b"".join(name + b"=" + value + b"\0" for name, value in variables.items())


def unpacked(data: bytes) -> dict[bytes, bytes]:
    """ValueError for what is no such list."""
    entries = data.split(b"\0")
    if entries.pop() or not all(b"=" in entry[1:] for entry in entries):
        raise ValueError("it is no list of variables")
    parts = (entry.partition(b"=") for entry in entries)
    return {name: value for name, _, value in parts}


def own_environment() -> Mapping[bytes, bytes]:
    """As this program was given it: Python adds LC_CTYPE where the host's locale is C."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return os.environb
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if equals}
