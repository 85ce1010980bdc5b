"""A job as its driver sees it: events in, effects out. It does no I/O; callers pass the time.

It validates the messages of agents and workers: agents run on other hosts, and workers are user programs.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from horovod.common import time_limits
from horovod.common.agent_messages import Place, object_in, packed
from horovod.runner import errors
from horovod.runner.agents import frames
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
from horovod.runner.agents.frames import Frame, Order
from horovod.runner.agents.outcome import End
from horovod.runner.agents.places import WORKER, variables_of
from horovod.runner.agents.records import RecordParser

_MOST_BYTES = 256 << 20  # of all keys and values
_HIGHEST_STATUS = 0xFFFF
_BROKEN = "a worker of this generation has ended; ask for the next one"


@dataclass(frozen=True)
class StartAgent:
    """Start a host's agent. Frames for it may follow at once."""

    host: str


@dataclass(frozen=True)
class ToAgent:
    host: str
    data: bytes


@dataclass(frozen=True)
class CloseAgent:
    """Close an agent's input, so that it ends. `is_lost`: kill it, as it would not notice."""

    host: str
    is_lost: bool = False


@dataclass(frozen=True)
class Wrote:
    """Records of a worker. Its host may send `size` bytes more when they have been shown."""

    worker: int
    records: Sequence[Frame]
    host: str
    size: int


@dataclass(frozen=True)
class Report:
    """A report that a worker's wrapper would send if it could: "lost HOST", "unreported SIGNAL"."""

    worker: int
    text: str


@dataclass(frozen=True)
class Label:
    """The label of an elastic job's worker, before its first output; "" when the worker is gone."""

    worker: int
    text: str


@dataclass(frozen=True)
class Took:
    """Bytes of the job's standard input that rank 0's pipe has taken; -1: rank 0 reads no more."""

    taken: int


@dataclass(frozen=True)
class Over:
    """Why an elastic job ends, "" for success."""

    message: str


@dataclass(frozen=True)
class Finish:
    code: int


Effect = StartAgent | ToAgent | CloseAgent | Wrote | Report | Label | Took | Say | Over | Finish
MoreVariables = Callable[[str, Place], Mapping[str, str]]


Waiter = TypeVar("Waiter")


class KeyValueStore(Generic[Waiter]):
    """The store through which ranks meet: values by key, and the waiters for missing keys."""

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._values: dict[str, str] = {}
        self._waiting: dict[str, list[Waiter]] = {}

    def set(self, key: str, value: str) -> list[Waiter]:
        """Set a value, and return the waiters for it."""
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
        """Remove the waiters for which `is_gone` is true, and return them."""
        found = [one for them in self._waiting.values() for one in them if is_gone(one)]
        left = {key: [one for one in them if not is_gone(one)] for key, them in self._waiting.items()}
        self._waiting = {key: them for key, them in left.items() if them}
        return found

    def _size(self, key: str) -> int:
        return len(key) + len(self._values[key]) if key in self._values else 0


class _Agent:
    def __init__(self, host: str) -> None:
        self.name = host  # or the name that the host reports
        self.heard: float | None = None  # time of its last frame
        self.is_closed = False


class _Worker:
    """`place`: at its start."""

    def __init__(self, host: str, place: Place) -> None:
        self.host = host
        self.place = place
        self.records = RecordParser()
        self.published: Place | None = None
        self.asked: tuple[Any, int] | None = None  # the request, and after which generation
        self.is_told = False
        self.has_raised = False  # an exception that its script did not catch


class Job:
    """A job; effects accumulate until `taken` returns them.

    `command`: of each worker; `more`: host and place -> variables of a worker apart from its place.

    In a fixed job a worker's number is its rank. In an elastic one (`is_elastic`) its output has a unique
    label: the rank of its start, with `.2` for the second worker that began as this rank.
    """

    def __init__(
        self,
        decisions: Decisions,
        command: Sequence[str],
        is_elastic: bool = False,
        more: MoreVariables = lambda host, place: {},
    ) -> None:
        self.decisions = decisions
        self.command = list(command)
        self.is_elastic = is_elastic
        self.effects: list[Effect] = []
        self._more = more
        self._agents: dict[str, _Agent] = {}
        self._workers: dict[int, _Worker] = {}
        self._store: KeyValueStore[tuple[int, Any]] = KeyValueStore()
        self._input_worker: int | None = None
        self._input_left = False  # data was sent, and the end was not
        self._starts: Counter[int] = Counter()  # workers that began as a rank
        self._code: int | None = None  # set when the job is being ended
        self._give_up_at: float | None = None
        self._ticked: float | None = None
        self._is_finished = False
        self._generation = 0  # the last one that was published
        self._broken = 0  # the last generation that lost a worker

    def taken(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def begin(self) -> None:
        self._run(self.decisions.begin())

    def takes_input(self) -> bool:
        """Whether the worker that reads the job's standard input runs."""
        return self._input_worker in self._workers

    def take_input(self, data: bytes) -> str | None:
        """Send input to the worker that reads it, b"" for the end; return its host, None for none."""
        if self._input_worker is None or (worker := self._workers.get(self._input_worker)) is None:
            return None
        self._input_left = bool(data)
        self._tell(worker.host, frames.numbered(frames.INPUT, self._input_worker, data))
        return worker.host

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
        agent.heard = now
        if frame.kind == frames.HELLO:
            agent.name = frame.record(host=str)["host"]
        elif frame.kind == frames.OUTPUT:
            number, data = frame.numbered()
            written = self._known(host, number).records.feed(data)
            self.effects.append(Wrote(number, written, host, len(data)))
        elif frame.kind == frames.TOOK:
            found = frame.record(worker=int, taken=int)
            if found["worker"] == self._input_worker:
                self.effects.append(Took(found["taken"]))
        elif frame.kind == frames.STARTED:
            self._known(host, frame.record(worker=int)["worker"])
            self._run(self.decisions.worker_started(frame.record(worker=int)["worker"]))
        elif frame.kind == frames.MESSAGE:
            number, text = frame.numbered()
            self._take_message(number, self._known(host, number), text)
        elif frame.kind == frames.ENDED:
            found = frame.record(worker=int, status=int)
            self._known(host, found["worker"])
            if not 0 <= found["status"] <= _HIGHEST_STATUS:
                raise ValueError(f"no process ends with status {found['status']}")
            self._take_end(found["worker"], os.waitstatus_to_exitcode(found["status"]))

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
            self.effects.append(Report(min(lost), f"lost {agent.name}"))
        self._store.forget(lambda waiter: waiter[0] in lost)
        for number, worker in lost.items():
            self._take_leave(number, worker, True)
        is_news = self._code is None and not agent.is_closed
        self._run(self.decisions.host_lost(host, reason) if is_news else [])

    def hosts_found(self, hosts: Mapping[str, int]) -> None:
        self._run(self.decisions.hosts_found(hosts) if self._code is None else [])

    def tick(self, now: float) -> None:
        if self._ticked is not None and now - self._ticked > time_limits.LONGEST_ROUND:
            for agent in self._agents.values():
                agent.heard = agent.heard and now
        self._ticked = now
        for host, agent in list(self._agents.items()):
            if agent.heard is not None and now - agent.heard > time_limits.HOST_SILENCE:
                self.effects.append(CloseAgent(host, is_lost=True))
                self.lose(host, f"it gave no sign of life for {time_limits.HOST_SILENCE:g} s")
        self._run(self.decisions.tick() if self._code is None else [])
        if all(agent.is_closed for agent in self._agents.values()) and self._agents:
            until = now + time_limits.AGENTS_END
            self._give_up_at = min(self._give_up_at or until, until)
        if self._give_up_at is not None and now > self._give_up_at:
            self._finish()

    def _run(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, Start):
                self._start(action)
            elif isinstance(action, Stop):
                self.say(action.why)
                self._stop(action.worker, signal.SIGTERM)
            elif isinstance(action, Publish):
                self.say(action.why)
                self._publish(action)
            elif isinstance(action, Leave):
                self._refuse(action.worker, action.reason)
            elif isinstance(action, Notify):
                event = {"event": "hosts_updated", "timestamp": action.timestamp, "update": action.update}
                for number in action.workers:
                    self._answer(number, event)
            elif isinstance(action, Say):
                self.say(action.text)
            elif isinstance(action, EndJob):
                self.effects.append(Over(action.message))
                self._end(action.code, signal.SIGTERM)
        if self._code is not None and not self._workers:
            self._close_all()

    def _start(self, action: Start) -> None:
        if self._code is not None:
            return
        if action.host not in self._agents:
            self._agents[action.host] = _Agent(action.host)
            self.effects.append(StartAgent(action.host))
        has_input = self._input_worker is None and action.place.rank == 0
        if has_input:
            self._input_worker = action.worker
        self._workers[action.worker] = _Worker(action.host, action.place)
        variables = {**self._more(action.host, action.place), **variables_of(action.place, action.host)}
        if self.is_elastic:
            variables[WORKER] = str(action.worker)
            self._starts[rank := action.place.rank] += 1
            times = self._starts[rank]
            self.effects.append(Label(action.worker, f"{rank}.{times}" if times > 1 else str(rank)))
        self._tell(action.host, Order(action.worker, self.command, variables, has_input).frame())

    def _stop(self, number: int, signal_number: int) -> None:
        worker = self._workers.get(number)
        if worker is not None and not worker.is_told:
            worker.is_told = True
            told = {"worker": number, "signal": int(signal_number)}
            self._tell(worker.host, frames.record(frames.STOP, told))

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
                self.effects.append(CloseAgent(host))
        if not self._agents:
            self._finish()

    def _finish(self) -> None:
        if not self._is_finished:
            self._is_finished = True
            self.effects.append(Finish(self._code or 0))

    def _take_end(self, number: int, code: int) -> None:
        worker = self._workers.pop(number)
        self._store.forget(lambda waiter: waiter[0] == number)
        if code < 0 and not worker.is_told:
            self.effects.append(Report(number, f"unreported {-code}"))
        self._take_leave(number, worker, code != 0)
        end = End(max(code, 0), max(-code, 0), raised=worker.has_raised)
        self._run(self.decisions.worker_ended(number, end) if self._code is None else [])

    def _take_leave(self, number: int, worker: _Worker, has_failed: bool) -> None:
        """Handle a worker that is gone, and whose output is complete."""
        if self.is_elastic:
            self.effects.append(Label(number, ""))
            if number == self._input_worker and self._input_left and has_failed and self._code is None:
                self.say("nobody reads the rest of standard input: the first rank 0 had it, which is lost")
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
            self._run(self.decisions.worker_asks(number, worker.asked[1]))
            if worker.published is not None:
                self._assign(number, worker, worker.published)
        elif does == "raised":
            worker.has_raised = True
            self._run(self.decisions.worker_raised(number))
        elif does == "leaves":
            why = " ".join(_text(message, "why").split())[:300]
            said = (why, int(message["commits"]), bool(message["lost"]))
            self._run(self.decisions.worker_leaves(number, *said))
        elif does == "lost":
            reason = " ".join(_text(message, "reason").split())[:300]
            accused = (int(message["generation"]), int(message["rank"]), reason)
            self._run(self.decisions.worker_accused(number, *accused))
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
            self._tell(worker.host, frames.numbered(frames.MESSAGE, number, packed(message)))

    def _known(self, host: str, number: int) -> _Worker:
        """Return the worker. ValueError if it is not on this host."""
        worker = self._workers.get(number)
        if worker is None or worker.host != host:
            raise ValueError(f"it speaks of worker {number}, which it has not")
        return worker

    def _tell(self, host: str, data: bytes) -> None:
        self.effects.append(ToAgent(host, data))

    def say(self, text: str) -> None:
        """Print a line of horovodrun's; nothing for ""."""
        if text:
            self.effects.append(Say(text))


def _text(message: Mapping[str, Any], name: str) -> str:
    text = message[name]
    if not isinstance(text, str):
        raise ValueError(f"{name} is no text")
    return text
