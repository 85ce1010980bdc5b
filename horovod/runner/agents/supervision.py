"""Watches over a job that runs: when it is to be ended, with which exit code, and what is said of it.

It does no I/O and is told what happens; times are seconds of one clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from signal import SIGPIPE, SIGTERM

from horovod.common import time_limits
from horovod.runner.agents.outcome import ElasticOutcome, Outcome, signal_name
from horovod.runner.closing import Closing
from horovod.runner.errors import OutputError

OUTPUT_CLOSED, OUTPUT_FAILED = 128 + SIGPIPE, 1
MANY_RANKS = 64  # may take long to start


@dataclass(frozen=True)
class Ending:
    """How a job ended: exit code, and the sentence about it, "" for success.

    `culprit` is the rank that the sentence is about, if any. `values`: what each rank sent as its value, in
    the order in which they began to arrive. `ends`: exit codes of those that ended. In elastic jobs a
    worker's number stands for a rank.
    """

    code: int
    message: str = ""
    culprit: int | None = None
    values: Mapping[int, bytes | bytearray] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict, compare=False)


class Supervision:
    """`ranks`: of a fixed job, and more than there ever are workers of an elastic one. `verbose`: say how
    each rank ended. `closing` hears of the ranks' notes. `start_timeout`, `exit_timeout`: seconds; 0 for the
    second, which see `Outcome.lingering`: no limit.
    """

    def __init__(
        self,
        ranks: int,
        start_timeout: float,
        exit_timeout: float = 0.0,
        is_elastic: bool = False,
        verbose: bool = False,
        closing: Closing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ranks = ranks
        self._start_timeout, self._exit_timeout = start_timeout, exit_timeout
        self._verbose = verbose
        self._closing = closing or Closing()
        self._clock = clock
        self.outcome = ElasticOutcome(ranks) if is_elastic else Outcome(ranks)
        began = clock()
        # An elastic job waits as long as that may, and its membership machine says for what.
        self._start_by: float | None = None if is_elastic else began + start_timeout
        tells_news = ranks >= MANY_RANKS and not is_elastic
        self._news_at: float | None = began + time_limits.NEWS_OF_START if tells_news else None
        self._vain_since: float | None = None
        self._lingering: list[int] = []  # and since when they do nothing, and when we looked last:
        self._lingers_since = self._looked_at = began
        self._end_at: float | None = None  # when the job is to be ended, and by which signal
        self._end_by = int(SIGTERM)
        self._is_ended = False  # it was told so
        self.interrupt = 0  # the first signal that has asked us to end
        self._values: dict[int, bytearray] = {}
        self._trouble: tuple[int, str] | None = None  # beats what the ranks report
        self._said: list[str] = []

    def take(self, rank: int, report: str) -> None:
        """A report of a rank's wrapper, or about it."""
        outcome = self.outcome
        try:
            if rank >= self._ranks:
                raise ValueError(f"rank {rank} reported {report!r}")
            if report == "busy":
                self.take_work(rank)
            else:
                outcome.take(rank, report)
                self._closing.hear(rank, report)
        except (ValueError, KeyError) as error:
            self._said.append(f"warning: a report makes no sense, and is left aside: {error}")
        if self._verbose and report.startswith(("ended", "killed", "refused")):
            self._said.append(f"{outcome.named(rank)} {outcome.ends.get(rank, report)}")
        if outcome.have_all_started():
            self._start_by = self._news_at = None
        if outcome.has_failure():
            self._end_after(
                time_limits.AFTER_FAILURE if outcome.has_settled() else time_limits.BEFORE_BLAMING
            )

    def take_value(self, rank: int, part: bytes) -> None:
        self._values.setdefault(rank, bytearray()).extend(part)

    def take_work(self, rank: int) -> None:
        """A rank writes, or uses the processor."""
        if rank in self._lingering:
            self._lingers_since = self._clock()

    def signalled(self, number: int) -> None:
        """We are asked to end. Ranks are told by the same signal; more signals are not heeded."""
        if not self.interrupt:
            self.interrupt = number
            if self._trouble is None:
                self._end_by = number
            self._stop(128 + number, f"stopped by {signal_name(number)}, all ranks were ended")

    def lose_output(self, error: OutputError) -> None:
        """Nobody reads our output (`horovodrun ... | head`), or it fails."""
        if error.is_closed:
            self._stop(OUTPUT_CLOSED, "")
        else:
            self._stop(OUTPUT_FAILED, f"{error}; all ranks were ended")

    def end_elastic(self, why: str) -> None:
        """The membership machine has ended its job, and says why."""
        if isinstance(self.outcome, ElasticOutcome):
            self.outcome.why = why

    def tick(self, now: float) -> list[str]:
        """Several times a second; returns what is to be said."""
        outcome = self.outcome
        if self._start_by is not None and now > self._start_by and not outcome.has_failure():
            self._start_by = None
            self._stop(
                1,
                f"{outcome.missing_start()} did not start within {self._start_timeout:g} s. "
                "Likely causes: a host is down or asks for a password; a firewall; too slow a file system "
                "(raise --start-timeout)",
            )
        if self._news_at is not None and now > self._news_at:
            self._news_at = now + time_limits.NEWS_OF_START
            self._said.append(f"{len(outcome.hosts)} of {self._ranks} ranks have started")
        wait = outcome.waits_in_vain()
        self._vain_since = (self._vain_since or now) if wait else None
        if self._vain_since is not None and now - self._vain_since > wait:
            self._end_after(0.0)
        self._heed_lingering(now)
        said, self._said = self._said, []
        return said

    def ends_by(self, now: float) -> int | None:
        """The signal by which the job is to be ended, once, when it is time."""
        if self._is_ended or self._end_at is None or now < self._end_at:
            return None
        self._is_ended = self.outcome.is_over = True
        return self._end_by

    def ending(self, code: int) -> Ending:
        """When all is over. `code`: of the job, before anybody is blamed."""
        code, message = self._trouble or self.outcome.conclusion(code)
        culprit = None if self._trouble else self.outcome.culprit()
        ends = {rank: end.exit_code() for rank, end in self.outcome.ends.items()}
        return Ending(code, message, culprit, self._values, ends)

    def _heed_lingering(self, now: float) -> None:
        """End those that keep the job from its end, and do nothing. Where we were stopped, so may they be."""
        limit = self._exit_timeout
        ranks = self.outcome.lingering() if limit and self._trouble is None else []
        if ranks != self._lingering or now - self._looked_at > time_limits.LONGEST_ROUND:
            self._lingering, self._lingers_since = ranks, now
        elif ranks and now - self._lingers_since > limit:
            self._lingering = []
            self._stop(1, self.outcome.overdue(ranks, limit))
        self._looked_at = now

    def _stop(self, code: int, message: str) -> None:
        if self._trouble is None:
            self._trouble = (code, message)
            self._end_after(0.0)

    def _end_after(self, seconds: float) -> None:
        at = self._clock() + seconds
        self._end_at = at if self._end_at is None else min(at, self._end_at)
