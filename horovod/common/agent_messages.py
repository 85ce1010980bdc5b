"""Messages between a worker and the agent of its host, over sockets that the worker inherits.

A *worker* is a process that an agent of horovodrun has started: a rank's command. VARIABLE names the worker's
end, as `descriptor:device:inode`. In a process that did not inherit it, the descriptor is another file.

    message := length:4 bytes, big-endian   one JSON object, of at most MOST_BYTES

    {"id":1, "do":"set", "key":.., "value":..}   values are base64
    {"id":2, "do":"get", "key":..}               answered when a rank has set it
    {"id":3, "do":"check", "keys":[..]}          {"id":4, "do":"delete", "key":..}
    {"id":5, "do":"assign", "after":G}           answered when there is a membership after generation G
    {"do":"lost", "generation":G, "rank":R, "reason":..}     a rank is silent
    {"do":"raised"}                              an exception of the script is not caught
    {"do":"leaves", "why":.., "commits":N, "lost":bool}      it ends, and is to be started again

An answer is {"id":.., "ok":..} or {"id":.., "error":text}. The agent also sends, unrequested,
{"event":"hosts_updated", "timestamp":seconds, "update":bits}. The agent forwards all requests: the driver
decides (`runner/agents`).

Standard library only and few imports, because each host's agent loads it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

VARIABLE = "HOROVOD_AGENT"
# Variables with a worker's place when it starts.
RANK, SIZE = "HOROVOD_RANK", "HOROVOD_SIZE"
LOCAL_RANK, LOCAL_SIZE = "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"
MOST_BYTES = 2 << 20  # of a message: stores take values of 1 MiB, which base64 makes a third longer
_HEADER = 4


class Place(NamedTuple):
    """A worker's place in one generation of a job. `hosts`: host names, by rank."""

    generation: int
    rank: int
    size: int
    local_rank: int
    local_size: int
    cross_rank: int
    cross_size: int
    hosts: tuple[str, ...]

    def record(self) -> dict[str, Any]:
        return {**self._asdict(), "hosts": list(self.hosts)}

    @classmethod
    def of(cls, record: Any) -> Place:
        """Parse a record. ValueError if it does not describe a place."""
        numbers = [record.get(name) for name in cls._fields[:-1]] if isinstance(record, dict) else [None]
        names = record.get("hosts") if isinstance(record, dict) else None
        if any(type(number) is not int or number < 0 for number in numbers):
            raise ValueError(f"{record!r:.200} is no place in a job")
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise ValueError(f"{record!r:.200} does not name the hosts of a job")
        place = cls._make([*numbers, tuple(names)])
        if not (place.rank < place.size == len(names) and place.local_rank < place.local_size):
            raise ValueError(f"{record!r:.200} is no place in a job: its numbers do not fit")
        return place


def packed(message: Mapping[str, Any]) -> bytes:
    """A message as bytes. ValueError if it is too long."""
    text = json.dumps(message, separators=(",", ":")).encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"a message of {len(text)} bytes is too long: {MOST_BYTES} at most")
    return len(text).to_bytes(_HEADER, "big") + text


def object_in(text: bytes) -> dict[str, Any]:
    """Parse a message. ValueError if it is not a JSON object."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:  # damaged UTF-8 included
        raise ValueError(f"no JSON: {error}") from None
    if not isinstance(message, dict):
        raise ValueError(f"no object: {text[:80]!r}")
    return message


class MessageParser:
    """Splits a byte stream into the texts of messages. Not thread-safe."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The texts that are now complete. ValueError for a length too large: the stream is unusable then."""
        self._buffer += data
        texts, at = [], 0
        while len(self._buffer) - at >= _HEADER:
            length = int.from_bytes(self._buffer[at : at + _HEADER], "big")
            if length > MOST_BYTES:
                raise ValueError(f"a message of {length} bytes is announced, and {MOST_BYTES} are the most")
            end = at + _HEADER + length
            if len(self._buffer) < end:
                break
            texts.append(bytes(self._buffer[at + _HEADER : end]))
            at = end
        del self._buffer[:at]
        return texts
