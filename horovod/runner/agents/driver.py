"""Takes mpirun's place as the command that horovodrun starts, see `agents`: `driver.py PLAN COMMAND...`.

Starts an agent on each host, hands what it says to `Job`, and does what that wants. Standard error carries
the ranks' cells, standard input what rank 0 is to read (see `job_input`). Run by its path and isolated:
standard library only.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3)))

from horovod.runner.agents import frames
from horovod.runner.agents.decisions import Decisions
from horovod.runner.agents.frames import FrameParser
from horovod.runner.agents.job import CloseAgent, Finish, Job, Show, StartAgent, ToAgent
from horovod.runner.agents.plan import Plan, agent_words
from horovod.runner.agents.streams import Outbox, Wake, ended_children, read, ready, spawn
from horovod.runner.daemon_agent import packed
from horovod.runner.forwarding import forwarded_variables
from horovod.runner.processes import adopt_orphans, end_descendants, send

TICK = 0.2  # seconds
_BLOCK = 4096  # a pipe that can be written takes so much at once
_BLOCKS = 32  # before other things are looked at
_MOST_INPUT = 1 << 20  # bytes that wait for an agent before no more standard input is read
_AGENT_ENDS = 1.0  # seconds between the end of what an agent writes, and its own
_STUCK_OUTPUT = 1.0  # seconds for horovodrun to read our last words, when we were told to end


class _Connection:
    """To an agent: the process that is it, or ssh, and its three streams."""

    def __init__(self, words: Sequence[str]) -> None:
        source, self.output_end = os.pipe()
        self.frames, frames_end = os.pipe()
        self.words, words_end = os.pipe()
        self.pid = spawn(words, os.environb, (source, frames_end, words_end))
        for descriptor in (source, frames_end, words_end):
            os.close(descriptor)
        for descriptor in (self.frames, self.words):
            os.set_blocking(descriptor, False)
        self.outbox = Outbox(self.output_end)
        self.parser = FrameParser(from_agent=True)
        self.status: int | None = None
        self.ended_at: float | None = None  # its frames
        self.said = self.unfinished = b""  # its last line on standard error, and the beginning of one
        self.credit = 0  # that it has not been told of

    def close(self) -> None:
        self.outbox.close()
        for descriptor in (self.frames, self.words):
            os.close(descriptor)

    def end(self, host: str) -> str:
        """Why its host cannot take part."""
        code = os.waitstatus_to_exitcode(self.status or 0)
        if code < 0:
            return f"its agent, or the ssh before it, was killed by {signal.Signals(-code).name}"
        if self.status is None or code == 0:
            return "its agent is gone"
        from horovod.runner.preflight import explained

        return str(explained(host, code, self.said.decode(errors="replace")))


class _Discovery:
    """The process that looks for hosts, and what it writes: `elastic.discover`."""

    def __init__(self, script: str, slots: int) -> None:
        from horovod.runner.elastic import discover

        self.descriptor, end = os.pipe()
        words = [sys.executable, "-I", "-S", discover.__file__, str(slots), script]
        nothing = os.open(os.devnull, os.O_RDONLY)
        spawn(words, os.environb, (nothing, end, 2))
        os.close(nothing)
        os.close(end)
        os.set_blocking(self.descriptor, False)
        self._rest = b""

    def news(self) -> list[dict[str, Any]]:
        """What it has written since. When it is gone, hosts stay as they are."""
        data = read(self.descriptor)
        if data == b"":
            os.close(self.descriptor)
            self.descriptor = -1
            return [{"say": "what looks for hosts has ended; hosts stay as they are"}]
        *lines, self._rest = (self._rest + (data or b"")).split(b"\n")
        return [json.loads(line) for line in lines]


class Driver:
    """Between a job and its agents. `decisions`: what becomes of the job."""

    def __init__(self, plan: Plan, decisions: Decisions, command: list[str]) -> None:
        self._plan = plan
        self._job = Job(decisions, command, plan.nonce, is_elastic=plan.elastic is not None)
        self._wake = Wake()
        self._connections: dict[str, _Connection] = {}
        self._shown: deque[tuple[memoryview, str | None]] = deque()
        self._input_host: str | None = None
        self._has_input = True
        self._is_told = False
        self._is_heard = True  # by horovodrun
        self._code: int | None = None
        script = plan.elastic.script if plan.elastic is not None else ""
        self._discovery = _Discovery(script, plan.elastic.slots_per_host) if script and plan.elastic else None

    def run(self) -> int:
        """To the job's end; returns its exit code."""
        self._job.begin()
        self._act()
        ticked = time.monotonic()
        while self._code is None:
            for descriptor in ready(self._wanted(), TICK):
                self._go_on(descriptor)
            now = time.monotonic()
            self._look_for_ends(now)
            if now - ticked >= TICK:
                ticked = now
                self._job.tick(now)
            self._act()
        self._show_rest()
        return self._code

    def _wanted(self) -> dict[int, int]:
        wanted = {self._wake.descriptor: select.POLLIN}
        for connection in self._connections.values():
            if connection.ended_at is None:
                wanted[connection.frames] = select.POLLIN
            wanted[connection.words] = select.POLLIN
            if connection.outbox.size:
                wanted[connection.outbox.descriptor] = select.POLLOUT
        if self._discovery is not None:
            wanted[self._discovery.descriptor] = select.POLLIN
        if self._shown:
            wanted[2] = select.POLLOUT
        host = self._connections.get(self._input_host or "")
        if self._has_input and (host is None or host.outbox.size < _MOST_INPUT):
            wanted[0] = select.POLLIN
        return wanted

    def _go_on(self, descriptor: int) -> None:
        now = time.monotonic()
        if descriptor == self._wake.descriptor:
            for number in self._wake.told():
                self._is_told = True
                self._job.signalled(number, now)
        elif descriptor == 2:
            self._show(now)
        elif descriptor == 0:
            self._read_input()
        elif self._discovery is not None and descriptor == self._discovery.descriptor:
            for news in self._discovery.news():
                self._job.say(news["say"]) if "say" in news else self._job.hosts_found(news["hosts"])
        for host, connection in list(self._connections.items()):
            if descriptor == connection.frames:
                self._read_frames(host, connection, now)
            elif descriptor == connection.words:
                self._read_words(connection)
            elif descriptor == connection.outbox.descriptor:
                connection.outbox.flush()

    def _read_input(self) -> None:
        data = read(0)
        if data is not None:
            self._has_input = bool(data)
            self._input_host = self._job.take_input(data)

    def _read_frames(self, host: str, connection: _Connection, now: float) -> bool:
        """Whether there was something."""
        data = read(connection.frames)
        if data is None:
            return False
        try:
            for frame in connection.parser.feed(data):
                self._job.heard(host, frame, now)
        except ValueError as error:
            self._shown.append(
                (memoryview(f"horovodrun: {host} is not understood: {error}\n".encode()), None)
            )
            data = b""
        if not data:
            connection.ended_at = now
            connection.outbox.close()
        return bool(data)

    def _read_words(self, connection: _Connection) -> None:
        """What ssh, or an agent in trouble, says: whole lines, so that cells stay whole."""
        if data := read(connection.words):
            lines, newline, connection.unfinished = (connection.unfinished + data).rpartition(b"\n")
            if newline:
                connection.said = lines.rpartition(b"\n")[2]
                self._shown.append((memoryview(lines + newline), None))

    def _look_for_ends(self, now: float) -> None:
        """Agents that have ended, or say nothing more."""
        ended = dict(ended_children())
        for host, connection in list(self._connections.items()):
            connection.status = ended.get(connection.pid, connection.status)
            if connection.status is not None and connection.ended_at is None:
                while self._read_frames(host, connection, now):  # the last ones
                    pass
                connection.ended_at = now  # also where somebody else holds the pipe, as a shared ssh may
            if connection.ended_at is None:
                continue
            if connection.status is None and now - connection.ended_at < _AGENT_ENDS:
                continue
            self._read_words(connection)
            self._forget(host, connection.end(host))

    def _forget(self, host: str, reason: str) -> None:
        connection = self._connections.pop(host)
        if connection.status is None:
            send(connection.pid, signal.SIGKILL)
        connection.close()
        self._job.lose(host, reason)

    def _act(self) -> None:
        """Do what the job wants."""
        while effects := self._job.taken():
            for effect in effects:
                if isinstance(effect, ToAgent):
                    if effect.host in self._connections:
                        self._connections[effect.host].outbox.put(effect.data)
                elif isinstance(effect, Show):
                    self._shown.append((memoryview(effect.data), effect.host))
                elif isinstance(effect, StartAgent):
                    self._start_agent(effect.host)
                elif isinstance(effect, CloseAgent):
                    self._close_agent(effect)
                elif isinstance(effect, Finish):
                    self._code = effect.code
        for connection in self._connections.values():
            connection.outbox.flush()

    def _start_agent(self, host: str) -> None:
        connection = _Connection(agent_words(self._plan, host))
        names = () if self._plan.is_here(host) else forwarded_variables(os.environ)  # here it inherits them
        variables = packed((os.fsencode(name), os.environb[os.fsencode(name)]) for name in names)
        connection.outbox.put(frames.frame(frames.ENVIRONMENT, variables))
        if self._plan.elastic is not None and not self._plan.is_here(host):
            self._send_function(host, connection)
        self._connections[host] = connection

    def _send_function(self, host: str, connection: _Connection) -> None:
        """To a host that may have come later: what its workers call, where the job is one of horovod.run."""
        from horovod.runner import payload
        from horovod.runner.rank import PAYLOAD_VARIABLE

        if name := os.environ.get(PAYLOAD_VARIABLE, ""):
            try:
                connection.outbox.put(frames.in_parts(frames.PAYLOAD, payload.found(name)))
            except OSError as error:  # its workers will not find it either, and end the job
                self._job.say(f"the function cannot be sent to {host}: {error}")

    def _close_agent(self, effect: CloseAgent) -> None:
        connection = self._connections.get(effect.host)
        if connection is None:
            return
        if effect.is_lost:
            del self._connections[effect.host]
            send(connection.pid, signal.SIGKILL)
            connection.close()
        else:
            connection.outbox.end()

    def _show(self, now: float) -> None:
        """Write what standard error has room for."""
        for _ in range(_BLOCKS):
            self._show_block(now)
            if not self._shown or not ready({2: select.POLLOUT}, 0):
                break

    def _show_block(self, now: float) -> None:
        """One for each answer of poll, so that it never blocks: horovodrun has its end made to block."""
        data, host = self._shown.popleft()
        try:
            count = os.write(2, data[:_BLOCK]) if self._is_heard else len(data)
        except OSError:
            self._is_heard, count = False, len(data)
            self._job.lose_output(now)
        if count < len(data):
            self._shown.appendleft((data[count:], host))
        if host is not None and (connection := self._connections.get(host)) is not None:
            connection.credit += count
            if connection.credit >= frames.WINDOW // 4 or not self._shown:
                connection.outbox.put(frames.numbered(frames.CREDIT, connection.credit))
                connection.credit = 0

    def _show_rest(self) -> None:
        """As long as horovodrun reads; it has its own limit, and ours counts when we were told to end."""
        until = time.monotonic() + _STUCK_OUTPUT
        while self._shown and self._is_heard and not (self._is_told and time.monotonic() > until):
            if ready({2: select.POLLOUT}, TICK):
                self._show(time.monotonic())


def _decisions(plan: Plan) -> Decisions:
    """Those of the kind of job that this is: the others are not loaded, as hosts wait for us."""
    if plan.elastic is None:
        from horovod.runner.agents.fixed_job import FixedJob

        return FixedJob(plan.hosts)
    limits, hosts = plan.elastic.limits(), dict(plan.hosts)
    if plan.elastic.restart:
        from horovod.runner.agents.restart_job import RestartJob

        return RestartJob(limits, hosts, time.monotonic, plan.failed)
    from horovod.runner.agents.elastic_job import ElasticJob

    return ElasticJob(limits, hosts, time.monotonic, plan.failed)


def main(text: str, command: list[str]) -> int:
    plan = Plan.of(text)
    adopt_orphans()
    code = Driver(plan, _decisions(plan), command).run()
    end_descendants(0.3)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
