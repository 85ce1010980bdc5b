"""The agent on a host of a job: starts workers on the driver's orders, and relays their output and messages.

    agent.py [here] [ssh] [facts]     on the driver's host; started by ssh; HELLO must have facts

The driver or ssh runs it by its path, isolated. Standard input and output carry frames (see `frames`). It
ends its workers and then itself when its standard input ends, when the ssh connection is cut, or when a
signal asks it to end. Standard library only and few imports, except for facts: it starts in some 40 ms.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3)))

from horovod.common import time_limits
from horovod.common.agent_messages import VARIABLE, MessageParser
from horovod.common.host_memory import VARIABLE as COMMITS_VARIABLE
from horovod.common.host_memory import KeptFolder
from horovod.runner.agents import frames
from horovod.runner.agents.frames import Frame, FrameParser, Order
from horovod.runner.agents.streams import Outbox, Wake, Wanted, is_cut, read, serve, spawn
from horovod.runner.agents.warm import WarmServer, can_be_warm
from horovod.runner.processes import adopt_orphans, children, end_descendants, ended_children, send

_MOST_WAITING = 8 << 20  # bytes of unread answers to a worker, or of requests: reading stops there
_PART = 1 << 16
_RESTARTS = b"HOROVOD_ELASTIC_RESTART"
_WRAPPER_WORDS = 4  # interpreter, flags and file; then the directory, and the command
_NOT_UNDERSTOOD = 203


class _Worker:
    """A wrapper with its command. A server, if given, starts the wrapper; until then `pid` is 0."""

    def __init__(
        self, order: Order, environment: Mapping[bytes, bytes], server: WarmServer | None = None
    ) -> None:
        ours, theirs = socket.socketpair()
        self.output, output_end = os.pipe()
        source, source_end = os.pipe() if order.has_input else (os.open(os.devnull, os.O_RDONLY), -1)
        status = os.fstat(theirs.fileno())
        told = {**order.variables, VARIABLE: f"{theirs.fileno()}:{status.st_dev}:{status.st_ino}"}
        own = {os.fsencode(name): os.fsencode(text) for name, text in told.items()}
        streams = (source, output_end, os.dup(2))  # the wrapper's errors join the agent's
        self._given = (*streams, theirs.detach())
        self._cold = (order.command, {**environment, **own}, streams, self._given[-1])
        self.pid = 0
        os.set_blocking(self.output, False)
        self.input = Outbox(source_end) if order.has_input else None
        self.input_taken = 0  # as last reported; -1: it reads no more
        self.channel = Outbox(ours.detach())
        self.requests = MessageParser()
        self.status: int | None = None
        self.kill_at: float | None = None
        self.is_drained = False
        words = order.command[_WRAPPER_WORDS:]
        if server is None or not server.ask(order.worker, words, order.variables, self._given):
            self.start()

    def waits(self) -> bool:
        """Whether the server has yet to start it."""
        return not self.pid and self.status is None

    def start(self) -> None:
        """Start the wrapper without a server."""
        self.become(spawn(*self._cold))

    def become(self, pid: int) -> None:
        self.pid = pid
        for descriptor in self._given:
            os.close(descriptor)

    def tell(self, number: int, now: float) -> None:
        """Send a signal. A worker that has not begun never does."""
        if self.waits():  # it counts as ended by the signal
            for descriptor in self._given:
                os.close(descriptor)
            self.status = number
            return
        self.kill_at = self.kill_at or now + time_limits.WRAPPER_GRACE
        if self.status is None:
            send(self.pid, number)

    def close(self) -> None:
        self.channel.close()
        if self.input is not None:
            self.input.close()
        os.close(self.output)


class Agent:
    """`source`, `target`: descriptors of frames. `told`: the arguments."""

    def __init__(self, source: int, target: int, told: Collection[str] = ()) -> None:
        self._source = source
        self._is_here = frames.HERE in told
        self._by_ssh = frames.BY_SSH in told
        self._has_driver = True
        self._target = Outbox(target)
        os.set_blocking(source, False)
        self._parser = FrameParser(from_agent=False)
        self._is_understood = False  # the driver's first frames were valid
        self._environment: dict[bytes, bytes] = {}  # of workers
        self._wake = Wake()
        self._workers: dict[int, _Worker] = {}
        self._credit = frames.WINDOW
        self._is_ending = False
        self._beat_at = 0.0
        self._has_orphans = False
        self._payload: list[bytes] = []  # received parts
        self._held = ExitStack()  # resources to release at the end
        self._restarts = False  # workers may be started again
        self._commits: KeptFolder | None = None
        self._server: WarmServer | None = None
        hello: dict[str, Any] = {"host": _here()}
        if frames.FACTS in told:
            from horovod.runner.agents.host_facts import describe

            hello |= describe()
        self._target.put(frames.MAGIC + frames.record(frames.HELLO, hello))

    def run(self) -> int:
        with self._held:
            return self._follow()

    def _follow(self) -> int:
        while not (self._is_ending and not self._workers):
            self._target.flush()
            serve(self._wanted(), self._seconds())
            self._look_at_workers()
            self._beat()
        until = time.monotonic() + time_limits.LAST_WORDS
        while self._target.size and time.monotonic() < until:
            serve({self._target.descriptor: (select.POLLOUT, self._target.flush)}, 0.1)
        return 0

    def _seconds(self) -> float:
        in_haste = self._is_ending or self._has_orphans or any(w.kill_at for w in self._workers.values())
        return 0.05 if in_haste else max(0.0, self._beat_at - time.monotonic())

    def _wanted(self) -> Wanted:
        wanted: Wanted = {self._wake.descriptor: (select.POLLIN, self._heed_signals)}
        if self._server is not None:
            wanted[self._server.descriptor] = select.POLLIN, self._look_at_server
        if self._has_driver:
            wanted[self._source] = select.POLLIN, self._read_frames
        if self._target.size:
            wanted[self._target.descriptor] = select.POLLOUT, self._target.flush
        for number, worker in self._workers.items():
            if self._may_read_output() and not worker.is_drained:
                wanted[worker.output] = select.POLLIN, partial(self._read_output, number, worker)
            if worker.input is not None and worker.input.size:
                act = partial(self._give_input, number, worker, worker.input)
                wanted[worker.input.descriptor] = select.POLLOUT, act
            may_ask = self._target.size < _MOST_WAITING
            events = (select.POLLIN if may_ask else 0) | (select.POLLOUT if worker.channel.size else 0)
            wanted[worker.channel.descriptor] = events, partial(self._relay, number, worker)
        return wanted

    def _may_read_output(self) -> bool:
        """Output that cannot be sent is read and dropped, so that workers can end."""
        return self._credit > 0 or self._target.is_broken or not self._has_driver

    def _heed_signals(self) -> None:
        for number in self._wake.told():
            self._end(number)

    def _read_frames(self) -> None:
        data = read(self._source)
        if data is None:
            return
        try:
            for frame in self._parser.feed(data):
                self._take(frame)
            self._is_understood = True
        except ValueError as error:
            if not self._is_understood:
                raise
            print(f"horovodrun: {_here()} does not understand the driver: {error}", file=sys.stderr)
            data = b""
        if not data:
            self._has_driver = False
            self._end(signal.SIGTERM)

    def _take(self, frame: Frame) -> None:
        if frame.kind == frames.QUESTION:
            self._answer(frame)
        elif frame.kind == frames.ENVIRONMENT:
            given = frames.unpacked_environment(frame.body)
            self._environment = given if self._is_here else {**_own_environment(), **given}
            self._restarts = self._environment.pop(_RESTARTS, b"") == b"1"
        elif frame.kind == frames.START:
            self._start(Order.of(frame))
        elif frame.kind == frames.STOP:
            told = frame.record(worker=int, signal=int)
            if (worker := self._workers.get(told["worker"])) is not None:
                worker.tell(told["signal"], time.monotonic())
        elif frame.kind == frames.CREDIT:
            self._credit += frame.numbered()[0]
        elif frame.kind == frames.PAYLOAD:
            self._take_payload(frame.body)
        else:
            number, data = frame.numbered()
            if (worker := self._workers.get(number)) is not None:
                self._pass_on(number, worker, frame.kind, data)

    def _answer(self, frame: Frame) -> None:
        """Answer a question. This may block for seconds, as no worker runs yet."""
        from horovod.runner.agents.host_facts import answer_to

        try:
            answer = {"answer": answer_to(frame.record())}
        except Exception as error:  # the driver reports any error
            answer = {"error": f"{type(error).__name__}: {error}"}
        self._target.put(frames.record(frames.ANSWER, answer))

    def _take_payload(self, part: bytes) -> None:
        """Collect and store the function that workers call.

        It stays until this agent ends, or until the agent ends that stored it in a folder that hosts share.
        """
        self._payload.append(part)
        if part:
            return
        from horovod.runner.agents.places import PAYLOAD
        from horovod.runner.payload import found, stored

        name = os.fsdecode(self._environment.get(PAYLOAD.encode(), b""))
        try:
            try:
                found(name)
            except FileNotFoundError:
                self._held.enter_context(stored(name, b"".join(self._payload)))
        except OSError as error:  # workers report that they do not find it
            print(f"horovodrun: the function cannot be stored on {_here()}: {error}", file=sys.stderr)
        self._payload = []

    def _pass_on(self, number: int, worker: _Worker, kind: bytes, data: bytes) -> None:
        if kind == frames.MESSAGE:
            worker.channel.put(data)
            worker.channel.flush()
            if worker.channel.size > _MOST_WAITING:
                worker.channel.close()  # if the worker ever reads, it finds the channel closed
        elif worker.input is not None:
            worker.input.put(data)
            if data:
                self._give_input(number, worker, worker.input)
            else:
                worker.input.end()

    def _give_input(self, number: int, worker: _Worker, source: Outbox) -> None:
        """Report how much of a worker's standard input is in its pipe, or that it reads no more."""
        source.flush()
        taken = -1 if source.is_broken else source.written
        if taken != worker.input_taken >= 0:
            worker.input_taken = taken
            self._target.put(frames.record(frames.TOOK, {"worker": number, "taken": taken}))

    def _start(self, order: Order) -> None:
        if self._is_ending or order.worker in self._workers:
            return
        order = order._replace(variables={**order.variables, **self._commits_variable()})
        worker = self._workers[order.worker] = _Worker(order, self._environment, self._warm_server(order))
        if worker.pid:
            self._tell_of_start(order.worker, worker)

    def _tell_of_start(self, number: int, worker: _Worker) -> None:
        self._target.put(frames.record(frames.STARTED, {"worker": number, "pid": worker.pid}))

    def _warm_server(self, order: Order) -> WarmServer | None:
        """Return the server that forks restarted workers, which is faster; None if there can be none."""
        command = order.command[_WRAPPER_WORDS + 1 :]
        if self._server is None and self._restarts and can_be_warm(command):
            self._server = WarmServer(command[0], self._environment)
        return self._server

    def _look_at_server(self) -> None:
        if self._server is None:
            return
        for number, pid in self._server.answers().items():
            worker = self._workers.get(number)
            if worker is not None and worker.waits():
                if pid:
                    worker.become(pid)
                else:
                    worker.start()
                self._tell_of_start(number, worker)
            elif pid:  # the worker was ended before this answer
                send(pid, signal.SIGKILL)
            # The killed wrapper may have left processes, and a wrapper may exist that no answer reported.
            self._has_orphans |= worker is None or worker.pid != pid
        if self._server.descriptor < 0 and not self._is_ending:
            for number, worker in self._workers.items():
                if worker.waits():
                    worker.start()
                    self._tell_of_start(number, worker)

    def _commits_variable(self) -> dict[str, str]:
        """Return the variable of the folder of commits, for workers that may be started again.

        The folder exists as long as this agent. The variable is empty if the folder cannot be made.
        """
        if not self._restarts:
            return {}
        if self._commits is None:
            try:
                self._commits = KeptFolder()
            except OSError as error:  # workers report the consequences
                print(f"horovodrun: {os.uname().nodename} cannot keep commits: {error}", file=sys.stderr)
                return {COMMITS_VARIABLE: ""}
        return {COMMITS_VARIABLE: self._commits.path}

    def finish(self) -> None:
        """Release everything, when no more workers will start."""
        if self._server is not None:
            self._server.close()
        end_descendants()
        if self._commits is not None:
            self._commits.remove()

    def _read_output(self, number: int, worker: _Worker) -> None:
        if worker.is_drained or not self._may_read_output():
            return
        data = read(worker.output)
        if data:
            self._credit -= len(data)
            if self._has_driver:
                self._target.put(frames.numbered(frames.WROTE, number, data))
        elif data == b"" or worker.status is not None:
            worker.is_drained = True

    def _relay(self, number: int, worker: _Worker) -> None:
        worker.channel.flush()
        if worker.channel.descriptor < 0 or self._target.size >= _MOST_WAITING:
            return
        data = read(worker.channel.descriptor)
        try:
            for text in worker.requests.feed(data or b""):
                self._target.put(frames.numbered(frames.MESSAGE, number, text))
        except ValueError as error:
            print(f"horovodrun: worker {number} on {_here()}: {error}", file=sys.stderr)
            data = b""
        if data == b"":
            worker.channel.close()

    def _look_at_workers(self) -> None:
        now = time.monotonic()
        ended = dict(ended_children())
        self._look_at_server()  # a worker's start must be known before its end
        for number, worker in list(self._workers.items()):
            worker.status = ended.get(worker.pid, worker.status)
            if worker.status is None:
                if worker.pid and worker.kill_at is not None and now > worker.kill_at:
                    send(worker.pid, signal.SIGKILL)
                continue
            self._read_output(number, worker)
            if worker.is_drained:
                self._has_orphans |= os.WIFSIGNALED(worker.status)
                self._relay(number, worker)  # its last messages
                del self._workers[number]
                worker.close()
                told = {"worker": number, "status": worker.status}
                self._target.put(frames.record(frames.ENDED, told))
        if self._has_orphans:
            self._end_orphans()

    def _end_orphans(self) -> None:
        """End the processes that a killed wrapper left behind: no other process would."""
        there = set(children())
        self._has_orphans = False
        self._look_at_server()  # the server answers before a wrapper becomes a child
        spared = {worker.pid for worker in self._workers.values()}
        left = there - spared - {self._server.pid if self._server is not None else 0}
        for pid in left:
            send(pid, signal.SIGKILL)
        self._has_orphans |= bool(left)

    def _end(self, number: int) -> None:
        """End all workers, and then this agent."""
        self._is_ending = True
        for worker in self._workers.values():
            worker.tell(number, time.monotonic())

    def _beat(self) -> None:
        now = time.monotonic()
        if now < self._beat_at:
            return
        self._beat_at = now + time_limits.AGENT_BEAT
        if self._target.size < _PART:
            self._target.put(frames.frame(frames.BEAT))
        if self._target.is_broken or (self._by_ssh and is_cut(os.environ.get("SSH_CONNECTION", ""))):
            self._end(signal.SIGTERM)


def _here() -> str:
    return os.uname().nodename


def _own_environment() -> Mapping[bytes, bytes]:
    """Return this process' original environment: Python adds LC_CTYPE if the locale is C."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return os.environb
    return {name: value for name, equals, value in (entry.partition(b"=") for entry in entries) if equals}


def main(*told: str) -> int:
    source, target = os.dup(0), os.dup(1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # no print may end up among frames
    adopt_orphans()
    agent = Agent(source, target, told)
    try:
        code = agent.run()
    except ValueError as error:  # the input is not from the driver
        print(
            f"horovodrun: its words did not reach {_here()}: {error}; likely a login script there (.bashrc "
            "and the like) reads its standard input, which is ssh's: have it leave that alone",
            file=sys.stderr,
        )
        code = _NOT_UNDERSTOOD
    agent.finish()
    return code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
