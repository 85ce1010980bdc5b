"""Runs a job by agents, in horovodrun's process: meets the hosts, then runs the job to its end.

    driver = Driver(ways)           agents start when `meet` is called, or when the job needs them
    driver.meet(hosts)              each host's facts, and why others cannot take part
    driver.ask({host: question})    answers, before the job begins
    Run(driver, job, ...).exit_code()

`Job` decides what agents get, `Supervision` when the job ends and which rank to blame, and `Writer` shows
output.
"""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import time_limits
from horovod.runner import errors
from horovod.runner.agents import frames
from horovod.runner.agents.connections import Connections, Events
from horovod.runner.agents.frames import Frame
from horovod.runner.agents.job import Job
from horovod.runner.agents.output import Writer
from horovod.runner.agents.reaching import Ways
from horovod.runner.agents.streams import Wake, Wanted, serve
from horovod.runner.agents.supervision import Supervision
from horovod.runner.elastic.discovery import Discovering
from horovod.runner.streams import discard_full, say

TICK = 0.2  # seconds
PART, WINDOW = 1 << 15, 1 << 18  # bytes of input per read, and bytes ahead of what rank 0 has taken
_MOST_INPUT = 1 << 20  # bytes waiting for an agent above which standard input is not read


class Interrupted(Exception):
    """A signal arrived before the job began; its number is the argument."""


@dataclass
class JobInput:
    """Standard input of a job, read only as far as rank 0 has room. `error`: why reading failed, or ""."""

    source: int
    error: str = ""
    _sent: int = 0
    _taken: int = 0
    _is_over: bool = False

    def wanted(self) -> int:
        """Return the descriptor to poll for input; -1 for none now."""
        has_room = self._sent - self._taken < WINDOW
        return self.source if not self._is_over and has_room and self._may_read() else -1

    def _may_read(self) -> bool:
        """False in the background of a terminal, in which reading stops the job."""
        try:
            return not os.isatty(self.source) or os.tcgetpgrp(self.source) == os.getpgrp()
        except OSError:  # another session's terminal
            return False

    def read(self) -> bytes:
        """Return the bytes at hand; b"" is the end."""
        try:
            data = os.read(self.source, PART)
        except OSError as error:
            data, self.error = b"", os.strerror(error.errno or 0)
        self._sent += len(data)
        self._is_over = not data
        return data

    def take(self, taken: int) -> None:
        """Note that rank 0's pipe has taken so many bytes in all; less than 0: the rank reads no more."""
        self._taken = taken
        self._is_over |= taken < 0


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
        answers, failures = self._wait_for(hosts, within)
        return answers, {host: why for host, why in failures.items() if host in hosts}

    def ask(
        self, questions: Mapping[str, Mapping[str, Any]], within: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        """Ask hosts that were met; return host -> answer, and host -> why there is none."""
        for host, question in questions.items():
            self.connections.put(host, frames.record(frames.QUESTION, question))
        return self._wait_for(list(questions), within)

    def _wait_for(self, hosts: Sequence[str], within: float) -> tuple[dict[str, Any], dict[str, str]]:
        answers: dict[str, Any] = {}
        failures: dict[str, str] = {}

        def hear(host: str, frame: Frame) -> None:
            if frame.kind == frames.HELLO:
                answers[host] = frame.record(host=str)
            elif frame.kind == frames.ANSWER:
                answer = frame.record()
                if "answer" in answer:
                    answers[host] = answer["answer"]
                else:
                    failures[host] = str(answer.get("error"))

        events = Events(hear, lambda words: None, failures.setdefault)
        until = time.monotonic() + within
        while missing := [host for host in hosts if host not in {**answers, **failures}]:
            left = until - time.monotonic()
            if left < 0:
                failures |= dict.fromkeys(missing, str(errors.no_answer(seconds=f"{within:g}")))
                for host in missing:
                    self.connections.drop(host)
                break
            self.connections.flush()
            waking: Wanted = {self.wake.descriptor: (select.POLLIN, self._heed_signals)}
            serve(waking | self.connections.wanted(events), min(TICK, left))
            self.connections.look_for_ends(events)
        return answers, failures

    def _heed_signals(self) -> None:
        for number in self.wake.told():
            raise Interrupted(number)


@dataclass
class Run:
    driver: Driver
    job: Job
    supervision: Supervision
    writer: Writer
    source: JobInput
    discovering: Discovering | None = None

    def exit_code(self) -> int:
        """Run the job; return its exit code, before a rank is blamed."""
        job, connections = self.job, self.driver.connections
        events = Events(
            lambda host, frame: job.heard(host, frame, time.monotonic()), self.writer.pass_on, job.lose
        )
        ticked = time.monotonic()
        job.begin(ticked)
        while job.exit_code is None:
            connections.flush()
            serve(self._wanted(events), TICK)
            connections.look_for_ends(events)
            now = time.monotonic()
            if now - ticked >= TICK:
                ticked = now
                job.tick(now)
            self._supervise(now)
        if self.discovering is not None:
            self.discovering.close()
        if self._shows_all():
            self._heed_errors()
            self.writer.close()
        else:
            discard_full(sys.stderr)
        if self.source.error:
            say(f"warning: standard input cannot be read: {self.source.error}")
        return job.exit_code

    def _shows_all(self) -> bool:
        """Show the remaining output; return whether all was shown. A reader may be slow, unless a signal has
        asked this process to end.
        """
        self.writer.end()
        until: float | None = None
        while not self.writer.has_ended(TICK):
            self._heed_signals()
            if self.supervision.interrupt:
                until = until or time.monotonic() + time_limits.LAST_WORDS
                if time.monotonic() > until:
                    return False
        return True

    def _wanted(self, events: Events) -> Wanted:
        wanted: Wanted = {
            self.driver.wake.descriptor: (select.POLLIN, self._heed_signals),
            self.writer.descriptor: (select.POLLIN, self._heed_shown),
            **self.driver.connections.wanted(events),
        }
        if self.discovering is not None:
            wanted[self.discovering.descriptor] = select.POLLIN, self._heed_discovery
        self.source.take(self.job.input_taken)
        host = self.job.input_host()
        if host is not None and self.driver.connections.waiting(host) < _MOST_INPUT:
            wanted[self.source.wanted()] = select.POLLIN, lambda: self.job.take_input(self.source.read())
        return wanted

    def _heed_signals(self) -> None:
        for number in self.driver.wake.told():
            self.supervision.signalled(number)

    def _heed_discovery(self) -> None:
        assert self.discovering is not None
        for news in self.discovering.news():
            if "say" in news:
                self.writer.say(news["say"])
            else:
                self.job.hosts_found(news["hosts"])

    def _heed_shown(self) -> None:
        for host, size, is_last in self.writer.done():
            self.driver.connections.credit(host, size, is_last)
        self._heed_errors()

    def _heed_errors(self) -> None:
        for error in self.writer.errors():
            self.supervision.lose_output(error)

    def _supervise(self, now: float) -> None:
        for sentence in self.supervision.tick(now):
            self.writer.say(sentence)
        if (number := self.supervision.ends_by(now)) is not None:
            self.job.signalled(number, now)
