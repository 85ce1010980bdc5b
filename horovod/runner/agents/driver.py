"""Runs a job by agents, in horovodrun's own process: meets the hosts, then runs the job to its end.

    driver = Driver(ways)           agents start when their hosts are met, or when the job needs them
    driver.meet(hosts)              each host's facts, and why others cannot take part
    driver.ask({host: question})    answers, before the job begins
    driver.run(job, supervision, ...)

`Job` decides what is told to agents, `Supervision` when the job is to be ended and who is to blame, and
`Writer` shows what ranks write. What goes between them goes through here; no other part does I/O with agents.
"""

from __future__ import annotations

import select
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from horovod.common import time_limits
from horovod.runner import errors
from horovod.runner.agents import frames, records
from horovod.runner.agents.connections import Connections, Events, Ways
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
from horovod.runner.agents.job_input import JobInput
from horovod.runner.agents.output import Writer
from horovod.runner.agents.streams import Wake, ready
from horovod.runner.agents.supervision import Supervision
from horovod.runner.elastic.actions import Say
from horovod.runner.elastic.discovery import Discovering
from horovod.runner.streams import discard_full, say

TICK = 0.2  # seconds
_MOST_INPUT = 1 << 20  # bytes that wait for an agent before no more standard input is read


class Interrupted(Exception):
    """A signal came before the job began."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Told:
    """What all agents are told before they start ranks. `here`: the variables of ranks on this machine;
    `elsewhere`: those for other hosts, which have their own besides. `function`: a payload, b"" for none.

    `refusal`: why a host cannot take part, by its facts; "" if it can.
    """

    here: bytes
    elsewhere: bytes
    function: bytes = b""
    refusal: Callable[[Mapping[str, Any]], str] = lambda facts: ""


@dataclass
class _Meeting:
    """What hosts have said, and why others do not."""

    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    answers: dict[str, Any] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def events(self) -> Events:
        return Events(self._hear, lambda words: None, self._lose)

    def _lose(self, host: str, reason: str) -> None:
        self.failures.setdefault(host, reason)

    def _hear(self, host: str, frame: Frame) -> None:
        if frame.kind == frames.HELLO:
            self.facts[host] = frame.record(host=str)
        elif frame.kind == frames.ANSWER:
            answer = frame.record()
            if "answer" in answer:
                self.answers[host] = answer["answer"]
            else:
                self.failures[host] = str(answer.get("error"))


class Driver:
    """As a context: agents end with it, whatever happens."""

    def __init__(self, ways: Ways) -> None:
        self._wake = Wake()
        self._connections = Connections(ways)

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self._connections.close(time_limits.AGENT_EXIT)
        self._wake.close()

    def meet(self, hosts: Sequence[str], within: float) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
        """Start an agent on each host; returns host -> facts, and host -> why it cannot take part.

        `within`: seconds that they have for it. Interrupted by a signal.
        """
        for host in hosts:
            self._connections.begin(host)
        met = self._wait_for(hosts, within, lambda meeting: meeting.facts)
        return met.facts, {host: why for host, why in met.failures.items() if host in hosts}

    def ask(
        self, questions: Mapping[str, Mapping[str, Any]], within: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Ask hosts that were met; returns host -> answer, and host -> why there is none."""
        for host, question in questions.items():
            self._connections.put(host, frames.record(frames.QUESTION, question))
        met = self._wait_for(list(questions), within, lambda meeting: meeting.answers)
        return met.answers, met.failures

    def _wait_for(
        self, hosts: Sequence[str], within: float, found: Callable[[_Meeting], Mapping[str, Any]]
    ) -> _Meeting:
        met = _Meeting()
        events = met.events()
        until = time.monotonic() + within
        while missing := [host for host in hosts if host not in found(met) and host not in met.failures]:
            left = until - time.monotonic()
            if left < 0:
                why = str(errors.no_answer(seconds=f"{within:g}"))
                met.failures |= dict.fromkeys(missing, why)
                for host in missing:
                    self._connections.drop(host)
                break
            self._connections.flush()
            wanted = {self._wake.descriptor: select.POLLIN, **self._connections.wanted()}
            for descriptor in ready(wanted, min(TICK, left)):
                if descriptor == self._wake.descriptor:
                    for number in self._wake.told():
                        raise Interrupted(number)
                else:
                    self._connections.go_on(descriptor, events)
            self._connections.look_for_ends(events)
        return met

    def run(
        self,
        job: Job,
        supervision: Supervision,
        writer: Writer,
        told: Told,
        source: JobInput,
        discovering: Discovering | None = None,
    ) -> int:
        """The job, to its end; returns its exit code, before anybody is blamed."""
        running = _Running(self._wake, self._connections, job, supervision, writer, told)
        return running.run(source, discovering)


class _Running:
    """One job that runs."""

    def __init__(
        self,
        wake: Wake,
        connections: Connections,
        job: Job,
        supervision: Supervision,
        writer: Writer,
        told: Told,
    ) -> None:
        self._wake = wake
        self._connections = connections
        self._job = job
        self._supervision = supervision
        self._writer = writer
        self._told = told
        self._events = Events(self._hear, writer.pass_on, self._lose)
        self._told_agents: set[str] = set()
        self._outstanding: dict[str, int] = {}  # bytes of each host that are not shown yet
        self._input_host: str | None = None
        self._code: int | None = None

    def run(self, source: JobInput, discovering: Discovering | None) -> int:
        self._job.begin()
        self._act(source)
        ticked = time.monotonic()
        while self._code is None:
            for descriptor in ready(self._wanted(source, discovering), TICK):
                self._go_on(descriptor, source, discovering)
            self._connections.look_for_ends(self._events)
            now = time.monotonic()
            if now - ticked >= TICK:
                ticked = now
                self._job.tick(now)
            self._supervise(now)
            self._act(source)
        if discovering is not None:
            discovering.close()
        if self._shows_all():
            self._heed_errors()
            self._writer.close()
        else:
            discard_full(sys.stderr)
        if source.error:
            say(f"warning: standard input cannot be read: {source.error}")
        return self._code

    def _shows_all(self) -> bool:
        """Whether all that ranks wrote was shown. A reader may take its time, unless we are told to end."""
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

    def _wanted(self, source: JobInput, discovering: Discovering | None) -> dict[int, int]:
        wanted = {self._wake.descriptor: select.POLLIN, self._writer.descriptor: select.POLLIN}
        wanted |= self._connections.wanted()
        if discovering is not None:
            wanted[discovering.descriptor] = select.POLLIN
        if self._job.takes_input() and self._connections.waiting(self._input_host or "") < _MOST_INPUT:
            wanted[source.wanted()] = select.POLLIN
        return wanted

    def _go_on(self, descriptor: int, source: JobInput, discovering: Discovering | None) -> None:
        if descriptor == self._wake.descriptor:
            for number in self._wake.told():
                self._supervision.signalled(number)
        elif descriptor == self._writer.descriptor:
            self._heed_shown()
        elif descriptor == source.wanted():
            self._input_host = self._job.take_input(source.read())
        elif discovering is not None and descriptor == discovering.descriptor:
            for news in discovering.news():
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
        """ValueError for what no agent says."""
        if frame.kind == frames.HELLO:
            self._tell_agent(host, frame)
        self._job.heard(host, frame, time.monotonic())

    def _lose(self, host: str, reason: str) -> None:
        self._job.lose(host, reason)

    def _tell_agent(self, host: str, hello: Frame) -> None:
        """What comes before orders; a host that cannot take part is refused."""
        if host in self._told_agents:
            return
        if refusal := self._told.refusal(hello.record(host=str)):
            self._connections.drop(host)
            self._job.lose(host, refusal)
            return
        self._told_agents.add(host)

    def _supervise(self, now: float) -> None:
        """Say what there is to say, and end the job if it is time."""
        for sentence in self._supervision.tick(now):
            self._writer.say(sentence)
        if (number := self._supervision.ends_by(now)) is not None:
            self._job.signalled(number, now)

    def _act(self, source: JobInput) -> None:
        """Do what the job wants."""
        while effects := self._job.taken():
            for effect in effects:
                self._do(effect, source)
        self._connections.flush()

    def _do(self, effect: Effect, source: JobInput) -> None:
        if isinstance(effect, ToAgent):
            self._connections.put(effect.host, effect.data)
        elif isinstance(effect, Wrote):
            self._take_records(effect)
        elif isinstance(effect, Report):
            self._supervision.take(effect.worker, effect.text)
        elif isinstance(effect, Label):
            self._writer.label(effect.worker, effect.text)
        elif isinstance(effect, Took):
            source.take(effect.taken)
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
        """Frames for it may follow at once. It may have been there before, with another build."""
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
        """Reports at once, what is to be shown in its turn."""
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
