"""Runs a job by agents, in horovodrun's process: meets the hosts, then runs the job to its end.

    driver = Driver(ways)           agents start when `meet` is called, or when the job needs them
    driver.meet(hosts)              each host's facts, and why others cannot take part
    driver.ask({host: question})    answers, before the job begins
    Run(driver, job, ...).exit_code()

`Job` decides what agents get, `Supervision` when the job ends and which rank to blame, and `Writer` shows
output. Only this module exchanges data with agents.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import time_limits
from horovod.runner import errors
from horovod.runner.agents import frames, records
from horovod.runner.agents.connections import Connections, Events
from horovod.runner.agents.decisions import Say
from horovod.runner.agents.frames import Frame
from horovod.runner.agents.job import (
    CloseAgent,
    Effect,
    Finish,
    Job,
    Label,
    Over,
    Report,
    StartAgent,
    ToAgent,
    Took,
    Wrote,
)
from horovod.runner.agents.output import Writer
from horovod.runner.agents.reaching import Ways
from horovod.runner.agents.streams import Wake, ready
from horovod.runner.agents.supervision import Supervision
from horovod.runner.elastic.discovery import Discovering
from horovod.runner.streams import discard_full, say

TICK = 0.2  # seconds
PART, WINDOW = 1 << 15, 1 << 18  # bytes of input per read, and bytes ahead of what rank 0 has taken
_MOST_INPUT = 1 << 20  # bytes waiting for an agent above which standard input is not read


class Interrupted(Exception):
    """A signal arrived before the job began."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Told:
    """The data that all agents get before they start ranks.

    Attributes:
        here: the variables of ranks on this machine.
        elsewhere: the variables of ranks on other hosts, which add their own.
        function: a payload, b"" for none.
        refusal: returns why a host with these facts cannot take part; "" if it can.
    """

    here: bytes
    elsewhere: bytes
    function: bytes = b""
    refusal: Callable[[Mapping[str, Any]], str] = lambda facts: ""


class JobInput:
    """Standard input of a job, read only as far as rank 0 has room. `error`: why reading failed, or ""."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._sent = self._taken = 0
        self._is_over = False
        self.error = ""

    def wanted(self) -> int:
        """Return the descriptor to poll for input; -1 for none now."""
        has_room = self._sent - self._taken < WINDOW
        return self._source if not self._is_over and has_room and self._may_read() else -1

    def _may_read(self) -> bool:
        """False in the background of a terminal, in which reading stops the job."""
        try:
            return not os.isatty(self._source) or os.tcgetpgrp(self._source) == os.getpgrp()
        except OSError:  # another session's terminal
            return False

    def read(self) -> bytes:
        """Return the bytes at hand; b"" is the end."""
        try:
            data = os.read(self._source, PART)
        except OSError as error:
            data, self.error = b"", os.strerror(error.errno or 0)
        self._sent += len(data)
        self._is_over = not data
        return data

    def take(self, taken: int) -> None:
        """Note that rank 0's pipe has taken so many bytes in all; less than 0: the rank reads no more."""
        self._taken = taken
        self._is_over |= taken < 0


class _Meeting:
    """The answer of each host, or the reason why it gave none."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.failures: dict[str, str] = {}
        self.events = Events(self._hear, lambda words: None, self._lose)

    def _lose(self, host: str, reason: str) -> None:
        self.failures.setdefault(host, reason)

    def _hear(self, host: str, frame: Frame) -> None:
        if frame.kind == frames.HELLO:
            self.answers[host] = frame.record(host=str)
        elif frame.kind == frames.ANSWER:
            answer = frame.record()
            if "answer" in answer:
                self.answers[host] = answer["answer"]
            else:
                self.failures[host] = str(answer.get("error"))


class Driver:
    """A context manager: all agents end with it."""

    def __init__(self, ways: Ways) -> None:
        self.wake = Wake()
        self.connections = Connections(ways)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.connections.close(time_limits.AGENT_EXIT)
        self.wake.close()

    def meet(self, hosts: Sequence[str], within: float) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Start an agent on each host; return host -> facts, and host -> why it cannot take part.

        `within`: the time limit in seconds. A signal raises Interrupted.
        """
        for host in hosts:
            self.connections.begin(host)
        met = self._wait_for(hosts, within)
        return met.answers, {host: why for host, why in met.failures.items() if host in hosts}

    def ask(
        self, questions: Mapping[str, Mapping[str, Any]], within: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Ask hosts that were met; return host -> answer, and host -> why there is none."""
        for host, question in questions.items():
            self.connections.put(host, frames.record(frames.QUESTION, question))
        met = self._wait_for(list(questions), within)
        return met.answers, met.failures

    def _wait_for(self, hosts: Sequence[str], within: float) -> _Meeting:
        met = _Meeting()
        until = time.monotonic() + within
        while missing := [host for host in hosts if host not in {**met.answers, **met.failures}]:
            left = until - time.monotonic()
            if left < 0:
                why = str(errors.no_answer(seconds=f"{within:g}"))
                met.failures |= dict.fromkeys(missing, why)
                for host in missing:
                    self.connections.drop(host)
                break
            self.connections.flush()
            wanted = {self.wake.descriptor: select.POLLIN, **self.connections.wanted()}
            for descriptor in ready(wanted, min(TICK, left)):
                if descriptor == self.wake.descriptor:
                    for number in self.wake.told():
                        raise Interrupted(number)
                else:
                    self.connections.go_on(descriptor, met.events)
            self.connections.look_for_ends(met.events)
        return met


class Run:
    """Runs one job by a driver to its end."""

    def __init__(
        self,
        driver: Driver,
        job: Job,
        supervision: Supervision,
        writer: Writer,
        told: Told,
        source: JobInput,
        discovering: Discovering | None = None,
    ) -> None:
        self._wake = driver.wake
        self._connections = driver.connections
        self._job = job
        self._supervision = supervision
        self._writer = writer
        self._told = told
        self._source = source
        self._discovering = discovering
        self._events = Events(self._hear, writer.pass_on, job.lose)
        self._told_agents: set[str] = set()
        self._outstanding: dict[str, int] = {}  # bytes of each host that are not shown yet
        self._input_host: str | None = None
        self._code: int | None = None

    def exit_code(self) -> int:
        """Run the job; return its exit code, before a rank is blamed."""
        self._job.begin()
        self._act()
        ticked = time.monotonic()
        while self._code is None:
            for descriptor in ready(self._wanted(), TICK):
                self._go_on(descriptor)
            self._connections.look_for_ends(self._events)
            now = time.monotonic()
            if now - ticked >= TICK:
                ticked = now
                self._job.tick(now)
            self._supervise(now)
            self._act()
        if self._discovering is not None:
            self._discovering.close()
        if self._shows_all():
            self._heed_errors()
            self._writer.close()
        else:
            discard_full(sys.stderr)
        if self._source.error:
            say(f"warning: standard input cannot be read: {self._source.error}")
        return self._code

    def _shows_all(self) -> bool:
        """Show the remaining output; return whether all was shown. A reader may be slow, unless a signal has
        asked this process to end.
        """
        self._writer.end()
        until: float | None = None
        while not self._writer.has_ended(TICK):
            for number in self._wake.told():
                self._supervision.signalled(number)
            if self._supervision.interrupt:
                until = until or time.monotonic() + time_limits.LAST_WORDS
                if time.monotonic() > until:
                    return False
        return True

    def _wanted(self) -> dict[int, int]:
        wanted = {self._wake.descriptor: select.POLLIN, self._writer.descriptor: select.POLLIN}
        wanted |= self._connections.wanted()
        if self._discovering is not None:
            wanted[self._discovering.descriptor] = select.POLLIN
        if self._job.takes_input() and self._connections.waiting(self._input_host or "") < _MOST_INPUT:
            wanted[self._source.wanted()] = select.POLLIN
        return wanted

    def _go_on(self, descriptor: int) -> None:
        if descriptor == self._wake.descriptor:
            for number in self._wake.told():
                self._supervision.signalled(number)
        elif descriptor == self._writer.descriptor:
            self._heed_shown()
        elif descriptor == self._source.wanted():
            self._input_host = self._job.take_input(self._source.read())
        elif self._discovering is not None and descriptor == self._discovering.descriptor:
            for news in self._discovering.news():
                if "say" in news:
                    self._job.say(news["say"])
                else:
                    self._job.hosts_found(news["hosts"])
        else:
            self._connections.go_on(descriptor, self._events)

    def _heed_shown(self) -> None:
        for host, size in self._writer.done():
            self._outstanding[host] -= size
            self._connections.credit(host, size, is_last=self._outstanding[host] == 0)
        self._heed_errors()

    def _heed_errors(self) -> None:
        for error in self._writer.errors():
            self._supervision.lose_output(error)

    def _hear(self, host: str, frame: Frame) -> None:
        """Handle a frame. ValueError for a frame that no agent sends."""
        if frame.kind == frames.HELLO:
            self._tell_agent(host, frame)
        self._job.heard(host, frame, time.monotonic())

    def _tell_agent(self, host: str, hello: Frame) -> None:
        """Accept an agent by its HELLO, or refuse a host that cannot take part."""
        if host in self._told_agents:
            return
        if refusal := self._told.refusal(hello.record(host=str)):
            self._connections.drop(host)
            self._job.lose(host, refusal)
            return
        self._told_agents.add(host)

    def _supervise(self, now: float) -> None:
        for sentence in self._supervision.tick(now):
            self._writer.say(sentence)
        if (number := self._supervision.ends_by(now)) is not None:
            self._job.signalled(number, now)

    def _act(self) -> None:
        while effects := self._job.taken():
            for effect in effects:
                self._do(effect)
        self._connections.flush()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, ToAgent):
            self._connections.put(effect.host, effect.data)
        elif isinstance(effect, Wrote):
            self._take_records(effect)
        elif isinstance(effect, Report):
            self._supervision.take(effect.worker, effect.text)
        elif isinstance(effect, Label):
            self._writer.label(effect.worker, effect.text)
        elif isinstance(effect, Took):
            self._source.take(effect.taken)
        elif isinstance(effect, Say):
            self._writer.say(effect.text)
        elif isinstance(effect, Over):
            self._supervision.end_elastic(effect.message)
        elif isinstance(effect, StartAgent):
            self._start_agent(effect.host)
        elif isinstance(effect, CloseAgent):
            if effect.is_lost:
                self._connections.drop(effect.host)
            else:
                self._connections.end(effect.host)
        elif isinstance(effect, Finish):
            self._code = effect.code

    def _start_agent(self, host: str) -> None:
        """Start an agent and send its first frames. It may have run before, with another build."""
        self._told_agents.discard(host)
        if host not in self._connections:
            self._connections.begin(host)
        here = self._connections.ways.is_here(host)
        told = self._told.here if here else self._told.elsewhere
        self._connections.put(host, frames.frame(frames.ENVIRONMENT, told))
        if self._told.function:
            self._connections.put(host, frames.in_parts(frames.PAYLOAD, self._told.function))
        connection = self._connections.get(host)
        if connection is not None and connection.hello is not None:
            self._told_agents.add(host)
            self._job.heard(host, connection.hello, time.monotonic())

    def _take_records(self, effect: Wrote) -> None:
        """Handle reports at once, and queue output to be shown."""
        shown = []
        for record in effect.records:
            if record.kind == records.REPORT:
                self._supervision.take(effect.worker, record.body.decode(errors="replace"))
            elif record.kind == records.VALUE:
                self._supervision.take_value(effect.worker, record.body)
            else:
                shown.append(record)
        if shown:
            self._supervision.take_work(effect.worker)
        self._outstanding[effect.host] = self._outstanding.get(effect.host, 0) + effect.size
        self._writer.show(effect.worker, shown, effect.host, effect.size)
