"""The driver's connections to agents: processes, their streams, and why a host cannot take part."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from horovod.common import time_limits
from horovod.runner import errors
from horovod.runner.agents import frames
from horovod.runner.agents.frames import Frame, FrameParser
from horovod.runner.agents.outcome import signal_name
from horovod.runner.agents.reaching import Ways, explained
from horovod.runner.agents.streams import Outbox, Wanted, read, start
from horovod.runner.processes import ended_children, send


class Connection:
    """A connection to an agent: its process (or ssh's) and three streams. `tries`: number of starts."""

    def __init__(self, ways: Ways, host: str, tries: int = 1) -> None:
        source, self.output_end = os.pipe()
        self.frames, frames_end = os.pipe()
        self.words, words_end = os.pipe()
        self.tries = tries
        self.pid = start(ways.words(host), ways.environment(host), (source, frames_end, words_end))
        for descriptor in (source, frames_end, words_end):
            os.close(descriptor)
        for descriptor in (self.frames, self.words):
            os.set_blocking(descriptor, False)
        self.outbox = Outbox(self.output_end)
        self.outbox.put(frames.MAGIC)
        self.parser = FrameParser(from_agent=True)
        self.hello: Frame | None = None
        self.status: int | None = None
        self.ended_at: float | None = None  # of its frames
        self.said = self.unfinished = b""  # its last line on standard error, and an incomplete one
        self.held_back = b""  # lines before HELLO, which may explain why none follows
        self.nonsense = ""  # why its frames are unusable
        self.credit = 0  # not yet sent to it

    def close(self) -> None:
        self.outbox.close()
        for descriptor in (self.frames, self.words):
            os.close(descriptor)
        self.frames = self.words = -1  # reading them finds no data

    def end(self, host: str) -> tuple[str, int]:
        """Return why the host cannot take part, and how many tries that is worth."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        if self.nonsense:
            return str(errors.not_understood(why=self.nonsense)), 1
        if code < 0:
            by = f"signal {-code} ({signal_name(-code)})"
            return f"its agent, or the ssh before it, was killed by {by}", 1
        if self.status is None or (code == 0 and self.hello is not None):
            return "its agent is gone", 1
        said = (self.held_back or self.said) + b"\n" + self.unfinished
        why = explained(host, code, said.decode(errors="replace"))
        return str(why), why.tries


@dataclass(frozen=True)
class Events:
    """Handlers of an agent's frames, its other output, and its end with the reason."""

    heard: Callable[[str, Frame], None]
    said: Callable[[bytes], None]
    lost: Callable[[str, str], object]


class Connections:
    """By host. Call `look_for_ends` several times a second."""

    def __init__(self, ways: Ways) -> None:
        self.ways = ways
        self._open: dict[str, Connection] = {}
        self._again: dict[str, tuple[float, int]] = {}  # when to try again, and tries so far
        self._unheard: dict[str, list[bytes]] = {}  # frames for agents that have not sent HELLO
        self._left: list[str] = []  # hosts that are not tried again

    def __contains__(self, host: str) -> bool:
        return host in self._open or host in self._again

    def hello(self, host: str) -> Frame | None:
        """Return the HELLO of a connected agent, if it has sent that."""
        connection = self._open.get(host)
        return None if connection is None else connection.hello

    def begin(self, host: str, tries: int = 1) -> None:
        self._open[host] = connection = Connection(self.ways, host, tries)
        for data in self._unheard.setdefault(host, []):
            connection.outbox.put(data)

    def put(self, host: str, data: bytes) -> None:
        """Send frames to an agent; no effect if it is gone."""
        if host in self._unheard:
            self._unheard[host].append(data)
        if (connection := self._open.get(host)) is not None:
            connection.outbox.put(data)

    def waiting(self, host: str) -> int:
        """Return the bytes for that agent that it has not read."""
        connection = self._open.get(host)
        return 0 if connection is None else connection.outbox.size

    def credit(self, host: str, size: int, is_last: bool) -> None:
        """Note that `size` bytes of an agent's output were shown. It gets credit in large steps."""
        connection = self._open.get(host)
        if connection is not None:
            connection.credit += size
            if connection.credit >= frames.WINDOW // 4 or is_last:
                connection.outbox.put(frames.numbered(frames.CREDIT, connection.credit))
                connection.credit = 0

    def flush(self) -> None:
        for connection in self._open.values():
            connection.outbox.flush()

    def end(self, host: str) -> None:
        """Close an agent's input: it ends its workers, and itself."""
        if (connection := self._open.get(host)) is not None:
            connection.outbox.end()
        elif host in self._again:  # the job does not need it any more
            self.drop(host)
            self._left.append(host)

    def drop(self, host: str) -> None:
        """Kill an agent that would not notice a closed input."""
        self._again.pop(host, None)
        self._unheard.pop(host, None)
        if (connection := self._open.pop(host, None)) is not None:
            if connection.status is None:
                send(connection.pid, signal.SIGKILL)
            connection.close()

    def wanted(self, events: Events) -> Wanted:
        wanted: Wanted = {}
        for host, connection in self._open.items():
            if connection.ended_at is None:
                wanted[connection.frames] = (
                    select.POLLIN,
                    partial(self._read_frames, host, connection, events),
                )
            wanted[connection.words] = select.POLLIN, partial(self._read_words, connection, events)
            if connection.outbox.size:
                wanted[connection.outbox.descriptor] = select.POLLOUT, connection.outbox.flush
        return wanted

    def _read_frames(self, host: str, connection: Connection, events: Events) -> bool:
        """Return whether there was data."""
        data = read(connection.frames)
        if data is None:
            return False
        try:
            for frame in connection.parser.feed(data):
                if connection.hello is None:
                    self._greet(host, connection, frame, events)
                events.heard(host, frame)
        except ValueError as error:
            connection.nonsense, data = str(error), b""
        if not data:
            connection.ended_at = time.monotonic()
            connection.outbox.close()
        return bool(data)

    def _greet(self, host: str, connection: Connection, frame: Frame, events: Events) -> None:
        if frame.kind != frames.HELLO:
            raise ValueError(f"a frame {frame.kind!r} before its first word")
        connection.hello = frame
        del self._unheard[host]
        if connection.held_back:
            events.said(connection.held_back)
            connection.held_back = b""

    def _read_words(self, connection: Connection, events: Events) -> None:
        if data := read(connection.words):
            lines, newline, connection.unfinished = (connection.unfinished + data).rpartition(b"\n")
            if not newline:
                return
            connection.said = lines.rpartition(b"\n")[2]
            if connection.hello is None:
                connection.held_back += lines + newline
            else:
                events.said(lines + newline)

    def look_for_ends(self, events: Events) -> None:
        """Handle agents that have ended or closed their frames, and start due retries."""
        now = time.monotonic()
        ended = dict(ended_children())
        for host, connection in list(self._open.items()):
            connection.status = ended.get(connection.pid, connection.status)
            if connection.status is not None and connection.ended_at is None:
                while self._read_frames(host, connection, events):
                    pass
                connection.ended_at = now  # another process may still hold the pipe, such as a shared ssh
            if connection.ended_at is None:
                continue
            if connection.status is None and now - connection.ended_at < time_limits.AGENT_EXIT:
                continue
            self._read_words(connection, events)
            self._forget(host, connection, events)
        left, self._left = self._left, []
        for host in left:
            events.lost(host, "it was not tried again")
        for host, (at, tries) in list(self._again.items()):
            if now >= at:
                del self._again[host]
                self.begin(host, tries + 1)

    def _forget(self, host: str, connection: Connection, events: Events) -> None:
        reason, tries = connection.end(host)
        unheard = self._unheard.get(host, [])
        self.drop(host)
        if connection.hello is None and connection.tries < tries:
            self._again[host] = (time.monotonic() + time_limits.AGENT_RETRY, connection.tries)
            self._unheard[host] = unheard
            return
        events.lost(host, reason)

    def close(self, seconds: float) -> None:
        """End all agents; kill the rest after so many seconds."""
        for connection in self._open.values():
            connection.outbox.close()
        until = time.monotonic() + seconds
        while self._open and time.monotonic() < until:
            ended = dict(ended_children())
            for host, connection in list(self._open.items()):
                if connection.pid in ended:
                    connection.status = ended[connection.pid]
                    self.drop(host)
            time.sleep(0.01 if self._open else 0)
        for host in [*self._open, *self._again]:
            self.drop(host)
