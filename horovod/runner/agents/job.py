"""A job as its driver sees it: it answers events by calls of the connections, the writer and the supervision.

It does no I/O itself; callers pass the time. It validates the messages of agents and workers: agents run on
other hosts, and workers are user programs.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from horovod.common import time_limits
from horovod.common.agent_messages import Place, object_in, packed
from horovod.runner import errors
from horovod.runner.agents import frames
from horovod.runner.agents.connections import Connections
from horovod.runner.agents.decisions import (
    Action,
    Decisions,
    EndJob,
    Leave,
    Notify,
    Publish,
    Say,
    Start,
    Stop,
)
from horovod.runner.agents.frames import Frame, Order, Splitter
from horovod.runner.agents.outcome import End
from horovod.runner.agents.output import Writer
from horovod.runner.agents.places import WORKER, variables_of
from horovod.runner.agents.supervision import Supervision

_MOST_BYTES = 256 << 20  # of all keys and values
_HIGHEST_STATUS = 0xFFFF
_BROKEN = "a worker of this generation has ended; ask for the next one"

MoreVariables = Callable[[str, Place], Mapping[str, str]]


@dataclass(frozen=True)
class Told:
    """The data from which agents start ranks."""

    command: Sequence[str]  # of each worker
    here: bytes  # the variables of ranks on this machine
    elsewhere: bytes  # the variables of ranks on other hosts, which add their own
    function: bytes = b""  # a payload, b"" for none
    # Returns why a host with these facts cannot take part; "" if it can.
    refusal: Callable[[Mapping[str, Any]], str] = lambda facts: ""
    # Host and place -> variables of a worker apart from its place.
    more: MoreVariables = lambda host, place: {}


Waiter = TypeVar("Waiter")


class KeyValueStore(Generic[Waiter]):
    """The store through which ranks meet: values by key, and the waiters for missing keys."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: dict[str, str] = {}
        self._waiting: dict[str, list[Waiter]] = {}

    def set(self, key: str, value: str) -> list[Waiter]:
        more = len(key) + len(value) - self._size(key)
        if self._bytes + more > self._most_bytes:
            raise errors.store_full(key=key, bytes=self._bytes)
        self._bytes += more
        self._values[key] = value
        return self._waiting.pop(key, [])

    def get(self, key: str, waiter: Waiter) -> str | None:
        """Return the value; None if it is missing: then `set` returns the waiter later."""
        if key not in self._values:
            self._waiting.setdefault(key, []).append(waiter)
        return self._values.get(key)

    def check(self, keys: Sequence[str]) -> bool:
        return all(key in self._values for key in keys)

    def delete(self, key: str) -> bool:
        self._bytes -= self._size(key)
        return self._values.pop(key, None) is not None

    def clear(self) -> None:
        self._values, self._waiting, self._bytes = {}, {}, 0

    def forget(self, is_gone: Callable[[Waiter], bool]) -> list[Waiter]:
        found = [one for them in self._waiting.values() for one in them if is_gone(one)]
        left = {key: [one for one in them if not is_gone(one)] for key, them in self._waiting.items()}
        self._waiting = {key: them for key, them in left.items() if them}
        return found

    def _size(self, key: str) -> int:
        return len(key) + len(self._values[key]) if key in self._values else 0


@dataclass
class _Agent:
    name: str  # of its host, as the host reports it
    heard: float | None = None  # time of its last frame
    is_closed: bool = False


@dataclass
class _Worker:
    host: str
    records: Splitter = field(default_factory=lambda: Splitter(frames.RECORDS))
    published: Place | None = None
    asked: tuple[Any, int] | None = None  # the request, and after which generation
    is_told: bool = False
    has_raised: bool = False  # an exception that its script did not catch


class Job:
    """A job. `exit_code` is set when it is over, before a rank is blamed.

    In a fixed job a worker's number is its rank. In an elastic one (`is_elastic`) its output has a unique
    label: the rank of its start, with `.2` for the second worker that began as this rank.
    """

    def __init__(
        self,
        decisions: Decisions,
        told: Told,
        connections: Connections,
        supervision: Supervision,
        writer: Writer,
        is_elastic: bool = False,
    ) -> None:
        self.exit_code: int | None = None
        self.input_taken = 0  # bytes of the job's standard input in rank 0's pipe; -1: it reads no more
        self._decisions, self._told, self._is_elastic = decisions, told, is_elastic
        self._connections, self._supervision, self._writer = connections, supervision, writer
        self._agents: dict[str, _Agent] = {}
        self._workers: dict[int, _Worker] = {}
        self._store: KeyValueStore[tuple[int, Any]] = KeyValueStore()
        self._input_worker: int | None = None
        self._input_left = False  # data was sent, and the end was not
        self._starts: Counter[int] = Counter()  # workers that began as a rank
        self._code: int | None = None  # set when the job is being ended
        self._give_up_at: float | None = None
        self._ticked = 0.0
        self._generation = 0  # the last one that was published
        self._broken = 0  # the last generation that lost a worker

    def begin(self, now: float) -> None:
        self._ticked = now
        self._run(self._decisions.begin())

    def input_host(self) -> str | None:
        """Return the host of the worker that reads the job's standard input; None if none does."""
        worker = self._workers.get(-1 if self._input_worker is None else self._input_worker)
        return None if worker is None else worker.host

    def take_input(self, data: bytes) -> None:
        """Send input to the worker that reads it, b"" for the end."""
        if (host := self.input_host()) is not None and self._input_worker is not None:
            self._input_left = bool(data)
            self._connections.put(host, frames.numbered(frames.INPUT, self._input_worker, data))

    def signalled(self, number: int, now: float) -> None:
        """A signal asks this process to end: workers get it too, once, and have JOB_END seconds to end."""
        if self._give_up_at is None:
            self._give_up_at = now + time_limits.JOB_END
            self._end(128 + number, number)

    def heard(self, host: str, frame: Frame, now: float) -> None:
        """Handle an agent's frame. ValueError for a malformed frame; the agent is unusable then."""
        agent = self._agents.get(host)
        if agent is None:
            return
        is_new, agent.heard = agent.heard is None, now
        if frame.kind == frames.HELLO:
            facts = frame.record(host=str)
            if is_new and (refusal := self._told.refusal(facts)):
                self._connections.drop(host)
                self.lose(host, refusal)
            else:
                agent.name = facts["host"]
        elif frame.kind == frames.WROTE:
            self._take_output(host, *frame.numbered())
        elif frame.kind == frames.TOOK:
            found = frame.record(worker=int, taken=int)
            if found["worker"] == self._input_worker:
                self.input_taken = found["taken"]
        elif frame.kind == frames.STARTED:
            number = frame.record(worker=int)["worker"]
            self._known(host, number)
            self._run(self._decisions.worker_started(number))
        elif frame.kind == frames.MESSAGE:
            number, text = frame.numbered()
            self._take_message(number, self._known(host, number), text)
        elif frame.kind == frames.ENDED:
            found = frame.record(worker=int, status=int)
            self._known(host, found["worker"])
            if not 0 <= found["status"] <= _HIGHEST_STATUS:
                raise ValueError(f"no process ends with status {found['status']}")
            self._take_end(found["worker"], os.waitstatus_to_exitcode(found["status"]))

    def _take_output(self, host: str, number: int, data: bytes) -> None:
        """Handle reports at once, and queue output to be shown: then its host may send as many bytes more."""
        shown = []
        for record in self._known(host, number).records.feed(data):
            if record.kind == frames.REPORT:
                self._supervision.take(number, record.body.decode(errors="replace"))
            elif record.kind == frames.VALUE:
                self._supervision.take_value(number, record.body)
            else:
                shown.append(record)
        if shown:
            self._supervision.take_work(number)
        self._writer.show(number, shown, host, len(data))

    def lose(self, host: str, reason: str) -> None:
        """A host's agent is gone or silent."""
        agent = self._agents.get(host)
        if agent is None:
            return
        del self._agents[host]
        lost = {number: worker for number, worker in self._workers.items() if worker.host == host}
        for number in lost:
            del self._workers[number]
        if lost and not agent.is_closed:
            self._supervision.take(min(lost), f"lost {agent.name}")
        self._store.forget(lambda waiter: waiter[0] in lost)
        for number, worker in lost.items():
            self._take_leave(number, worker, True)
        is_news = self._code is None and not agent.is_closed
        self._run(self._decisions.host_lost(host, reason) if is_news else [])

    def hosts_found(self, hosts: Mapping[str, int]) -> None:
        self._run(self._decisions.hosts_found(hosts) if self._code is None else [])

    def tick(self, now: float) -> None:
        if now - self._ticked > time_limits.LONGEST_ROUND:
            for agent in self._agents.values():
                agent.heard = agent.heard and now
        self._ticked = now
        for host, agent in list(self._agents.items()):
            if agent.heard is not None and now - agent.heard > time_limits.HOST_SILENCE:
                self._connections.drop(host)  # it would not notice a closed input
                self.lose(host, f"it gave no sign of life for {time_limits.HOST_SILENCE:g} s")
        self._run(self._decisions.tick() if self._code is None else [])
        if all(agent.is_closed for agent in self._agents.values()) and self._agents:
            until = now + time_limits.AGENTS_END
            self._give_up_at = min(self._give_up_at or until, until)
        if self._give_up_at is not None and now > self._give_up_at:
            self._finish()

    def _run(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Stop | Publish) and action.why:
                self._writer.say(action.why)
            if isinstance(action, Start):
                self._start(action)
            elif isinstance(action, Stop):
                self._stop(action.worker, signal.SIGTERM)
            elif isinstance(action, Publish):
                self._publish(action)
            elif isinstance(action, Leave):
                self._refuse(action.worker, action.reason)
            elif isinstance(action, Notify):
                event = {"event": "hosts_updated", "timestamp": action.timestamp, "update": action.update}
                for number in action.workers:
                    self._answer(number, event)
            elif isinstance(action, Say):
                self._writer.say(action.text)
            elif isinstance(action, EndJob):
                self._supervision.end_elastic(action.message)
                self._end(action.code, signal.SIGTERM)
        if self._code is not None and not self._workers:
            self._close_all()

    def _start(self, action: Start) -> None:
        if self._code is not None:
            return
        if action.host not in self._agents:
            self._start_agent(action.host)
        has_input = self._input_worker is None and action.place.rank == 0
        if has_input:
            self._input_worker = action.worker
        self._workers[action.worker] = _Worker(action.host)
        variables = {**self._told.more(action.host, action.place), **variables_of(action.place, action.host)}
        if self._is_elastic:
            variables[WORKER] = str(action.worker)
            self._starts[rank := action.place.rank] += 1
            times = self._starts[rank]
            self._writer.label(action.worker, f"{rank}.{times}" if times > 1 else str(rank))
        order = Order(action.worker, self._told.command, variables, has_input)
        self._connections.put(action.host, order.frame())

    def _start_agent(self, host: str) -> None:
        """Start an agent, unless the driver has met it, and send its first frames."""
        agent = self._agents[host] = _Agent(host)
        if (hello := self._connections.hello(host)) is not None:
            agent.name, agent.heard = hello.record(host=str)["host"], self._ticked
        if host not in self._connections:
            self._connections.begin(host)
        here = self._connections.ways.is_here(host)
        first = frames.frame(frames.ENVIRONMENT, self._told.here if here else self._told.elsewhere)
        if self._told.function:
            first += frames.in_parts(frames.PAYLOAD, self._told.function)
        self._connections.put(host, first)

    def _stop(self, number: int, signal_number: int) -> None:
        worker = self._workers.get(number)
        if worker is not None and not worker.is_told:
            worker.is_told = True
            told = {"worker": number, "signal": int(signal_number)}
            self._connections.put(worker.host, frames.record(frames.STOP, told))

    def _end(self, code: int, signal_number: int) -> None:
        self._code = code if self._code is None else self._code
        for number in list(self._workers):
            self._stop(number, signal_number)
        if not self._workers:
            self._close_all()

    def _close_all(self) -> None:
        for host, agent in self._agents.items():
            if not agent.is_closed:
                agent.is_closed = True
                self._connections.end(host)
        if not self._agents:
            self._finish()

    def _finish(self) -> None:
        self.exit_code = self._code or 0

    def _take_end(self, number: int, code: int) -> None:
        worker = self._workers.pop(number)
        self._store.forget(lambda waiter: waiter[0] == number)
        if code < 0 and not worker.is_told:
            self._supervision.take(number, f"unreported {-code}")
        self._take_leave(number, worker, code != 0)
        end = End(max(code, 0), max(-code, 0), raised=worker.has_raised)
        self._run(self._decisions.worker_ended(number, end) if self._code is None else [])

    def _take_leave(self, number: int, worker: _Worker, has_failed: bool) -> None:
        if self._is_elastic:
            self._writer.label(number, "")
            if number == self._input_worker and self._input_left and has_failed and self._code is None:
                lost = "the first rank 0 had it, which is lost"
                self._writer.say(f"no rank reads the rest of standard input: {lost}")
        self._break(worker)

    def _break(self, gone: _Worker) -> None:
        """Answer workers that wait in the store for a worker that is gone: they ask for a new place."""
        generation = gone.published.generation if gone.published is not None else 0
        if generation <= self._broken:
            return
        self._broken = generation
        for number, request in self._store.forget(lambda waiter: self._is_broken(self._workers[waiter[0]])):
            self._answer(number, {"id": request, "error": _BROKEN})

    def _is_broken(self, worker: _Worker) -> bool:
        """Whether this worker's generation has lost a worker."""
        return worker.published is not None and worker.published.generation <= self._broken

    def _take_message(self, number: int, worker: _Worker, text: bytes) -> None:
        """Answer a malformed request with an error: a worker's mistake does not end the job."""
        request: Any = None
        try:
            message = object_in(text)
            request = message.get("id")
            self._serve(number, worker, message)
        except (ValueError, KeyError, TypeError) as error:
            self._answer(number, {"id": request, "error": f"{type(error).__name__}: {error}"})

    def _serve(self, number: int, worker: _Worker, message: Mapping[str, Any]) -> None:
        request, does = message.get("id"), message["do"]
        if does in ("set", "get", "check") and self._is_broken(worker):
            raise ValueError(_BROKEN)
        if does == "set":
            waiters = self._store.set(_text(message, "key"), _text(message, "value"))
            self._answer(number, {"id": request, "ok": None})
            for other, waits in waiters:
                self._answer(other, {"id": waits, "ok": message["value"]})
        elif does == "get":
            value = self._store.get(_text(message, "key"), (number, request))
            if value is not None:
                self._answer(number, {"id": request, "ok": value})
        elif does == "check":
            are_there = self._store.check(list(map(str, message["keys"])))
            self._answer(number, {"id": request, "ok": are_there})
        elif does == "delete":
            self._answer(number, {"id": request, "ok": self._store.delete(_text(message, "key"))})
        elif does == "assign":
            worker.asked = (request, int(message["after"]))
            self._run(self._decisions.worker_asks(number, worker.asked[1]))
            if worker.published is not None:
                self._assign(number, worker, worker.published)
        elif does == "raised":
            worker.has_raised = True
            self._run(self._decisions.worker_raised(number))
        elif does == "leaves":
            why = " ".join(_text(message, "why").split())[:300]
            said = (why, int(message["commits"]), bool(message["lost"]))
            self._run(self._decisions.worker_leaves(number, *said))
        elif does == "lost":
            reason = " ".join(_text(message, "reason").split())[:300]
            accused = (int(message["generation"]), int(message["rank"]), reason)
            self._run(self._decisions.worker_accused(number, *accused))
        else:
            raise ValueError(f"a worker cannot ask to {does!r:.40}")

    def _publish(self, action: Publish) -> None:
        if action.generation > self._generation:
            self._generation = action.generation
            self._store.clear()  # earlier generations' values
        for number, place in action.places.items():
            if (worker := self._workers.get(number)) is not None:
                worker.published = place
                self._assign(number, worker, place, is_new=True)
        for number, reason in action.out.items():
            self._refuse(number, reason)

    def _refuse(self, number: int, reason: str) -> None:
        """Answer a worker that has asked: it gets no place."""
        worker = self._workers.get(number)
        if worker is not None and worker.asked is not None:
            (request, _), worker.asked = worker.asked, None
            self._answer(number, {"id": request, "ok": {"out": reason}})

    def _assign(self, number: int, worker: _Worker, place: Place, is_new: bool = False) -> None:
        """Answer a worker that has asked. An old publication counts only if it is newer than the worker's."""
        if worker.asked is not None and (is_new or place.generation > worker.asked[1]):
            (request, _), worker.asked = worker.asked, None
            self._answer(number, {"id": request, "ok": place.record()})

    def _answer(self, number: int, message: Mapping[str, Any]) -> None:
        if (worker := self._workers.get(number)) is not None:
            self._connections.put(worker.host, frames.numbered(frames.MESSAGE, number, packed(message)))

    def _known(self, host: str, number: int) -> _Worker:
        """Return the worker. ValueError if it is not on this host."""
        worker = self._workers.get(number)
        if worker is None or worker.host != host:
            raise ValueError(f"it speaks of worker {number}, which it has not")
        return worker


def _text(message: Mapping[str, Any], name: str) -> str:
    text = message[name]
    if not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    return text
