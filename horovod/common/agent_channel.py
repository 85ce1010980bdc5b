"""A worker's channel to the agent that started it: the job's store, its place in the job, and news of hosts.

`agent_messages` describes the messages. A process has at most one channel, and only the process that
inherited it has it.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from horovod.common import errors
from horovod.common.agent_messages import VARIABLE, MessageParser, Place, object_in, packed
from horovod.common.exceptions import HorovodInternalError, follows_others, lost_ranks
from horovod.common.exits import at_exit, uncaught_exception

_log = logging.getLogger("horovod")
_opened: dict[int, AgentChannel] = {}  # process id -> its channel: a forked child has none
_opening = threading.Lock()


class AgentChannel:
    """A store like `rendezvous.store.Store`, and the launcher's messages about the job. Thread-safe.

    All methods but lost(), raised(), leaves() and listen() wait for an answer. They raise ValueError if the
    channel is broken, for example because the agent has ended, or if the request cannot be met.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.generation = 0  # the last one in which this process had a place
        self.place: Place | None = None  # in that generation
        self._connection = connection
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._answers: dict[int, Mapping[str, Any]] = {}
        self._asked = 0
        self._broken = ""
        self._callback: Callable[[float, int], None] | None = None
        self._news: list[tuple[float, int]] = []  # not yet passed to a listener
        threading.Thread(target=self._read, name="horovod agent channel", daemon=True).start()

    def set(self, key: str, value: bytes | str) -> None:
        data = value.encode() if isinstance(value, str) else bytes(value)
        self._ask("set", key=key, value=base64.b64encode(data).decode())

    def get(self, key: str) -> bytes:
        """Wait until some rank has set the key."""
        answer = self._ask("get", key=key)
        if not isinstance(answer, str):
            raise errors.no_value(got=repr(answer)[:80])
        return base64.b64decode(answer, validate=True)

    def check(self, keys: Sequence[str]) -> bool:
        return bool(self._ask("check", keys=list(keys)))

    def delete_key(self, key: str) -> bool:
        """Delete a key, and return whether it was set."""
        return bool(self._ask("delete", key=key))

    def assign(self) -> Place:
        """Wait for the job's next generation, and return this worker's place in it; Removed if it has none.

        A job of fixed ranks has only the first, and answers at once.
        """
        answer = self._ask("assign", after=self.generation)
        if isinstance(answer, dict) and "out" in answer:
            raise errors.out_of_the_job(why=str(answer["out"]))
        place = Place.of(answer)
        self.generation, self.place = place.generation, place
        return place

    def lost(self, generation: int, rank: int, reason: str) -> None:
        """Report to the launcher that a rank of a generation is silent. Does not wait."""
        self._send({"do": "lost", "generation": generation, "rank": rank, "reason": reason})

    def raised(self) -> None:
        """Report to the launcher that an exception of the script ends this process. Does not wait."""
        self._send({"do": "raised"})

    def tell_exception(self, error: BaseException | None) -> None:
        """Call raised() if the script's own exception ends this process: a successor would raise it again."""
        is_own = isinstance(error, Exception) and not isinstance(error, HorovodInternalError)
        if is_own and not follows_others(error):
            with contextlib.suppress(ValueError):  # the agent is gone, and this process ends anyway
                self.raised()

    def leaves(self, why: str, commits: int, is_lost: bool) -> None:
        """Report to the launcher that this process ends, to be restarted (``restarting``). Does not wait."""
        self._send({"do": "leaves", "why": why, "commits": commits, "lost": is_lost})

    def listen(self, callback: Callable[[float, int], None]) -> None:
        """Have callback(timestamp, update) called when hosts come (1) or go (2), or both (3).

        The channel's thread calls it. News that came before is passed at once, on the caller's thread.
        """
        with self._changed:
            self._callback = callback
            news, self._news = self._news, []
        for timestamp, update in news:
            callback(timestamp, update)

    def _ask(self, do: str, **arguments: Any) -> Any:
        with self._changed:
            self._asked += 1
            number = self._asked
        self._send({"id": number, "do": do, **arguments})
        with self._changed:
            self._changed.wait_for(lambda: number in self._answers or self._broken)
            answer = self._answers.pop(number, None)
        if answer is None:
            raise errors.channel_broken(why=self._broken)
        if "error" in answer:
            raise errors.refused(do=do, why=answer["error"])
        return answer.get("ok")

    def _send(self, message: Mapping[str, Any]) -> None:
        data = packed(message)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise errors.agent_gone(why=str(error)) from None

    def _read(self) -> None:
        parser = MessageParser()
        why = "the agent of horovodrun that started this process is gone"
        try:
            while data := self._connection.recv(1 << 16):
                for text in parser.feed(data):
                    self._take(object_in(text))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"{why}: {error}"
        with self._changed:
            self._broken = why
            self._changed.notify_all()

    def _take(self, message: Mapping[str, Any]) -> None:
        if message.get("event") == "hosts_updated":
            self._hear(float(message["timestamp"]), int(message["update"]))
        elif isinstance(number := message.get("id"), int):
            with self._changed:
                self._answers[number] = message
                self._changed.notify_all()

    def _hear(self, timestamp: float, update: int) -> None:
        with self._changed:
            callback = self._callback
            if callback is None:
                self._news.append((timestamp, update))
        if callback is not None:
            try:
                callback(timestamp, update)
            except Exception:
                _log.exception("horovod: what listens to news of hosts has failed.")


def agent_channel(environment: Mapping[str, str] = os.environ) -> AgentChannel | None:
    """This process' channel; None if no agent started it, or if it has not inherited the channel."""
    with _opening:
        if (owner := os.getpid()) not in _opened:
            connection = None if _opened else _inherited(environment.get(VARIABLE, ""))
            if connection is None:
                return None
            channel = _opened[owner] = AgentChannel(connection)

            @at_exit
            def tell_what_was_raised() -> None:
                if os.getpid() == owner:
                    channel.tell_exception(uncaught_exception())

        return _opened[owner]


def accuse(error: BaseException) -> None:
    """Report to the launcher the ranks that an error says are lost: such a rank may only seem to live."""
    channel = agent_channel(os.environ)
    if channel is not None:
        for rank in lost_ranks(error):
            channel.lost(channel.generation, rank, str(error))


def _inherited(text: str) -> socket.socket | None:
    """The socket that VARIABLE names. Children of this process do not inherit it."""
    with contextlib.suppress(ValueError, OSError):
        descriptor, device, inode = map(int, text.split(":"))
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) == (device, inode):
            os.set_inheritable(descriptor, False)
            return socket.socket(fileno=descriptor)
    return None
