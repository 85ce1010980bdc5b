"""The frames between a job's driver and its agents, and the records of a rank's wrapper.

Frames travel over an agent's standard input and output.

    frame := length:4 bytes, big-endian   kind:1 byte   body: `length` bytes, MOST_BYTES at most
    worker := number:4 bytes, big-endian

    from the driver                             from an agent
    "Q" JSON: a question (`host_facts`)         "H" JSON: {"host": its name, ..}: facts, if requested
    "E" variables: NAME=VALUE and a zero byte   "A" JSON: {"answer": ..} or {"error": ..}, to a question
    "D" a part of the function that workers     "P" JSON: {"worker": .., "pid": ..}: it has started
        call, none for the end (`payload`)      "X" JSON: {"worker": .., "status": as of waitpid}
    "S" JSON: see `Order`                       "B" nothing: a sign of life, every second
    "T" JSON: {"worker": .., "signal": ..}      "K" JSON: {"worker": .., "taken": ..}: bytes of its standard
    "I" worker, bytes of its standard input,        input that are in its pipe, or -1: it reads no more
        none for the end                        "O" worker, bytes that it wrote: records
    "M" worker, message (`agent_messages`)      "M" worker, a message without its length
    "C" bytes:4, that may be written in addition

Both streams begin with MAGIC. Text before an agent's MAGIC comes from a login script, and is skipped. "E"
and "D" come before the first "S".

An agent sends WINDOW bytes of output ("O"), then as many as the driver reports shown ("C"). This
back-pressure limits buffers if the reader is slow, and other frames never wait behind output.

A wrapper writes records to its standard output: frames of these kinds, whose body is output or a report.

    kind   := "O" (standard output) | "E" (standard error) | "R" (report) | "V" (value: see `function_rank`)
    report := "started" host pid | "ended" code told | "killed" signal told | "refused" code reason...
            | "note" note | "busy" | "stopped" signal | "continued"

`told` is 1 if this rank was asked to end (SIGTERM and the like) before it ended: then it is not the culprit.
`note`: written by the rank itself, see `horovod.common.notes`. `stopped`: by SIGSTOP or the like. `busy`: a
rank that has left the job uses the processor.

Standard library only and few imports, as `agent` and `wrapper`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from horovod.common.agent_messages import object_in

MAGIC = b"\nhorovodrun agents 2\n"
# Arguments of an agent: it is on the driver's host; ssh started it; its HELLO has facts of its host.
HERE, BY_SSH, FACTS = "here", "ssh", "facts"
MOST_BYTES = 8 << 20  # environments usually have at most 2 MiB, and messages no more
WINDOW = 1 << 18
QUESTION, ENVIRONMENT, PAYLOAD, START, STOP, INPUT, CREDIT = b"Q", b"E", b"D", b"S", b"T", b"I", b"C"
HELLO, ANSWER, STARTED, ENDED, BEAT, TOOK, WROTE = b"H", b"A", b"P", b"X", b"B", b"K", b"O"
MESSAGE = b"M"
_FROM_DRIVER = (QUESTION, ENVIRONMENT, PAYLOAD, START, STOP, INPUT, CREDIT, MESSAGE)
_FROM_AGENT = (HELLO, ANSWER, STARTED, ENDED, BEAT, TOOK, WROTE, MESSAGE)
RECORDS = OUTPUT, ERROR, REPORT, VALUE = b"O", b"E", b"R", b"V"
_HEADER, _NUMBER = 5, 4


class Frame(NamedTuple):
    kind: bytes
    body: bytes

    def numbered(self) -> tuple[int, bytes]:
        """Return the number (a worker or a credit) and the rest of the body. ValueError for a short body."""
        if len(self.body) < _NUMBER:
            raise ValueError(f"a frame {self.kind!r} without a number")
        return int.from_bytes(self.body[:_NUMBER], "big"), self.body[_NUMBER:]

    def record(self, **types: type) -> dict[str, Any]:
        """Return the JSON object, with entries of these types. ValueError for anything else."""
        found = object_in(self.body)
        if any(type(found.get(name)) is not kind for name, kind in types.items()):
            raise ValueError(f"a frame {self.kind!r} with {self.body[:200]!r}")
        return found


class Order(NamedTuple):
    """An order to start a worker."""

    worker: int  # its number
    command: Sequence[str]
    variables: Mapping[str, str]  # in addition to the agent's
    has_input: bool = False  # "I" frames are for it; otherwise its standard input is empty

    def frame(self) -> bytes:
        return record(START, self._asdict())

    @classmethod
    def of(cls, frame: Frame) -> Order:
        """Parse a frame. ValueError if it is not an order."""
        found = frame.record(worker=int, command=list, variables=dict, has_input=bool)
        texts = [*found["command"], *found["variables"].keys(), *found["variables"].values()]
        if not found["command"] or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"a frame {frame.kind!r} with {frame.body[:200]!r}")
        return cls(found["worker"], found["command"], found["variables"], found["has_input"])


def frame(kind: bytes, body: bytes = b"") -> bytes:
    """Return a frame as bytes. ValueError for a body that is too long."""
    if len(body) > MOST_BYTES:
        raise ValueError(f"a frame {kind!r} of {len(body)} bytes is too long: {MOST_BYTES} at most")
    return len(body).to_bytes(_NUMBER, "big") + kind + body


def numbered(kind: bytes, number: int, data: bytes = b"") -> bytes:
    return frame(kind, number.to_bytes(_NUMBER, "big") + data)


def in_parts(kind: bytes, data: bytes) -> bytes:
    """Return the data in as many frames as needed, and a final frame without a body."""
    starts = range(0, len(data), MOST_BYTES)
    return b"".join([*(frame(kind, data[start : start + MOST_BYTES]) for start in starts), frame(kind)])


def record(kind: bytes, entries: Mapping[str, Any]) -> bytes:
    return frame(kind, json.dumps(entries).encode())


def packed_environment(variables: Mapping[bytes, bytes]) -> bytes:
    return b"".join(name + b"=" + value + b"\0" for name, value in variables.items())


def unpacked_environment(data: bytes) -> dict[bytes, bytes]:
    """Parse variables. ValueError for a malformed list."""
    entries = data.split(b"\0")
    if entries.pop() or not all(b"=" in entry[1:] for entry in entries):
        raise ValueError("it is no list of variables")
    parts = (entry.partition(b"=") for entry in entries)
    return {name: value for name, _, value in parts}


class Splitter:
    """Splits a stream into frames of these kinds."""

    def __init__(self, kinds: Collection[bytes]) -> None:
        self._kinds = kinds
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the newly complete frames. ValueError for malformed data; the stream is unusable then."""
        self._buffer += data
        found, at = [], 0
        while len(self._buffer) - at >= _HEADER:
            length, kind = int.from_bytes(self._buffer[at : at + _NUMBER], "big"), self._buffer[at + _NUMBER]
            if bytes([kind]) not in self._kinds or length > MOST_BYTES:
                raise ValueError(f"no frame begins with {bytes(self._buffer[at : at + 40])!r}")
            end = at + _HEADER + length
            if len(self._buffer) < end:
                break
            found.append(Frame(bytes([kind]), bytes(self._buffer[at + _HEADER : end])))
            at = end
        del self._buffer[:at]
        return found


class FrameParser(Splitter):
    def __init__(self, from_agent: bool) -> None:
        super().__init__(_FROM_AGENT if from_agent else _FROM_DRIVER)
        self._from_agent = from_agent
        self._has_begun = False

    def feed(self, data: bytes) -> list[Frame]:
        if self._has_begun:
            return super().feed(data)
        self._buffer += data
        return super().feed(b"") if self._begins() else []

    def _begins(self) -> bool:
        at = self._buffer.find(MAGIC)
        if not self._from_agent and at != 0 and not MAGIC.startswith(self._buffer):
            raise ValueError("it does not begin as it should")
        self._has_begun = at >= 0
        beginning = max(0, len(self._buffer) - len(MAGIC) + 1)  # the rest may be the beginning of MAGIC
        del self._buffer[: at + len(MAGIC) if self._has_begun else beginning]
        return self._has_begun
