"""Descriptors that never block, children with their own streams, and the state of ssh's connection.

Standard library only and few imports, as `agent`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

from horovod.runner.processes import ENDING, end_with_parent

# Descriptor -> the events to wait for, and the action.
Wanted: TypeAlias = dict[int, tuple[int, Callable[[], object]]]
_NOT_STARTED = 127
_PART = 1 << 16
# Retransmissions without an answer: after 0.2 s, 0.4 s, ..., 6 s in all.
_UNANSWERED = 5
# Columns of /proc/net/tcp. If the interface is down, retransmissions count as probes.
_STATE, _RETRANSMITS, _PROBES, _ESTABLISHED = 3, 6, 8, "01"


class Outbox:
    """Output for a descriptor, which it owns. `size`: bytes that wait; `written`: bytes written so far.

    If the reader is gone it is broken. A broken or closed outbox drops all data.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor  # -1 when closed
        self.size = self.written = 0
        self.is_broken = False
        self._parts: deque[memoryview] = deque()
        self._is_ending = False
        os.set_blocking(descriptor, False)

    def put(self, data: bytes) -> None:
        if data and self.descriptor >= 0 and not self._is_ending:
            self._parts.append(memoryview(data))
            self.size += len(data)

    def flush(self) -> None:
        try:
            while self._parts and self.descriptor >= 0:
                part = self._parts[0]
                count = os.write(self.descriptor, part[:_PART])
                self.size -= count
                self.written += count
                if count < len(part):
                    self._parts[0] = part[count:]
                else:
                    self._parts.popleft()
        except BlockingIOError:
            return
        except OSError:  # EPIPE, ECONNRESET: the reader is gone
            self.is_broken = True
            self.close()
        if self._is_ending:
            self.close()

    def end(self) -> None:
        """Close it after all data is written."""
        self._is_ending = True
        self.flush()

    def close(self) -> None:
        self._parts.clear()
        self.size = 0
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def read(descriptor: int) -> bytes | None:
    """Return the data; b"" at the end or after an error; None if there is no data now."""
    try:
        return os.read(descriptor, _PART)
    except BlockingIOError:
        return None
    except OSError:
        return b""


def spawn(
    words: Sequence[str], environment: Mapping[bytes, bytes], streams: tuple[int, int, int], kept: int = -1
) -> int:
    """Start a program with these standard streams, and `kept` open; return its process id.

    It gets its own session: a terminal's signals (Ctrl-C) are for horovodrun only. The kernel sends it
    SIGTERM when this process ends, for whatever reason.
    """
    parent, child = os.getpid(), os.fork()
    if child:
        return child
    try:
        end_with_parent(signal.SIGTERM)
        if os.getppid() != parent:
            os._exit(_NOT_STARTED)
        os.setsid()
        for number in (*ENDING, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        for standard, descriptor in enumerate(streams):
            os.dup2(descriptor, standard)
        if kept >= 0:
            os.set_inheritable(kept, True)
        os.execvpe(words[0], list(words), environment)
    except OSError as error:
        with suppress(OSError):
            os.write(2, f"horovodrun: {words[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(_NOT_STARTED)  # the child must not continue this program


def start(words: Sequence[str], environment: Mapping[bytes, bytes], streams: tuple[int, int, int]) -> int:
    """As `spawn`, for a process with threads: the child runs no Python before its program.

    The program must end by itself when its standard input does. OSError if it cannot be started.
    """
    return os.posix_spawnp(
        words[0],
        list(words),
        environment,
        file_actions=[(os.POSIX_SPAWN_DUP2, each, standard) for standard, each in enumerate(streams)],
        setsid=True,
        setsigdef=(*ENDING, signal.SIGCHLD, signal.SIGPIPE),
    )


class Wake:
    """This process' signals as a descriptor to poll, until closed."""

    def __init__(self) -> None:
        self.descriptor, self._end = os.pipe()
        os.set_blocking(self.descriptor, False)
        os.set_blocking(self._end, False)
        self._before_us: dict[int, Any] = {}
        signal.set_wakeup_fd(self._end, warn_on_full_buffer=False)
        for number in (*ENDING, signal.SIGCHLD):
            self._before_us[number] = signal.signal(number, lambda *_: None)

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before_us.items():
            signal.signal(number, handler)
        os.close(self.descriptor)
        os.close(self._end)

    def numbers(self) -> bytes:
        return read(self.descriptor) or b""

    def told(self) -> list[int]:
        """Return the signals received that ask this process to end."""
        return [number for number in self.numbers() if number in ENDING]


def serve(wanted: Wanted, seconds: float | None) -> None:
    """Wait until descriptors are ready for wanted events, or have failed, and call their actions.

    Waits for at most `seconds`; None: any time. An action may close another descriptor, whose action then
    must have no effect.
    """
    poll = select.poll()
    for descriptor, (events, _) in wanted.items():
        if descriptor >= 0 and events:
            poll.register(descriptor, events)
    for descriptor, _ in poll.poll(None if seconds is None else max(0, round(seconds * 1e3))):
        wanted[descriptor][1]()


def is_cut(connection: str) -> bool:
    """Whether this SSH_CONNECTION, by which ssh started the agent of this host, is cut; False for "".

    A host that is cut off may not see the connection end for hours. But an agent sends a sign of life every
    second, and the kernel counts retransmissions. The kernel of a stopped driver still acknowledges.
    """
    for name in ("tcp", "tcp6") if connection else ():
        with suppress(OSError), open(f"/proc/self/net/{name}", encoding="utf-8") as file:
            if is_unanswered(file.read(), connection):
                return True
    return False


def is_unanswered(table: str, connection: str) -> bool:
    """Whether a table as /proc/net/tcp has this SSH_CONNECTION, and it gets no answers."""
    words = connection.split()
    if len(words) != 4:
        return False
    with suppress(ValueError):
        ports = tuple(f"{int(port):04X}" for port in (words[3], words[1]))  # of this host, of the other
        there = _hexadecimal(words[0])
        for line in table.splitlines()[1:]:
            columns = line.split()
            ends = [end.rpartition(":") for end in columns[1:3]]
            if (ends[0][2], ends[1][2]) == ports and ends[1][0].endswith(there):
                lost = max(int(columns[_RETRANSMITS], 16), int(columns[_PROBES]))
                return columns[_STATE] == _ESTABLISHED and lost >= _UNANSWERED
    return False


def _hexadecimal(address: str) -> str:
    """Return an address as in the kernel's tables: 4-byte words in the machine's byte order. An IPv4 address
    is the end of its IPv6 form.
    """
    from ipaddress import ip_address  # here, as a wrapper does not need it

    packed = ip_address(address.partition("%")[0]).packed
    words = [packed[at : at + 4] for at in range(0, len(packed), 4)]
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
