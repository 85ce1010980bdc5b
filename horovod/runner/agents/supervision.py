"""Watches a running job: when it must end, with which exit code and message.

It does no I/O; callers report events. Times are seconds of one clock.
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
    """How a job ended. In elastic jobs a worker's number takes the place of a rank."""

    code: int
    message: str = ""  # "" for success
    culprit: int | None = None  # the rank that the message is about, if any
    values: Mapping[int, bytes | bytearray] = field(default_factory=dict)  # by rank, in order of arrival
    ends: Mapping[int, int] = field(default_factory=dict, compare=False)  # rank -> exit code, if it has ended


@dataclass
class Supervision:
    """Collects reports about a job, and decides when it ends."""

    ranks: int  # of a fixed job; of an elastic job, a number above all workers' numbers
    start_timeout: float  # seconds for all ranks to start
    exit_timeout: float = 0.0  # seconds for lingering ranks (see `Outcome.lingering`); 0: no limit
    is_elastic: bool = False
    verbose: bool = False  # report how each rank ended
    closing: Closing = field(default_factory=Closing)  # gets the ranks' notes
    clock: Callable[[], float] = time.monotonic
    interrupt: int = 0  # the first signal that asked this process to end; 0 for none

    def __post_init__(self) -> None:
        self.outcome = ElasticOutcome(self.ranks) if self.is_elastic else Outcome(self.ranks)
        began = self.clock()
        # In an elastic job the membership machine limits this time, and knows the reason for waiting.
        self._start_by: float | None = None if self.is_elastic else began + self.start_timeout
        tells_news = self.ranks >= MANY_RANKS and not self.is_elastic
        self._news_at: float | None = began + time_limits.NEWS_OF_START if tells_news else None
        self._vain_since: float | None = None
        self._lingering: list[int] = []  # ranks; the next line: idle since when, and when last checked
        self._lingers_since = self._looked_at = began
        self._end_at: float | None = None  # when the job must end, and by which signal
        self._end_by = int(SIGTERM)
        self._is_ended = False  # the caller has got the signal
        self._values: dict[int, bytearray] = {}
        self._trouble: tuple[int, str] | None = None  # takes precedence over the ranks' reports
        self._said: list[str] = []

    def take(self, rank: int, report: str) -> None:
        """Take a report of a rank's wrapper, or about it."""
        outcome = self.outcome
        try:
            if rank >= self.ranks:
                raise ValueError(f"rank {rank} reported {report!r}")
            if report == "busy":
                self.take_work(rank)
            else:
                outcome.take(rank, report)
                self.closing.hear(report)
        except (ValueError, KeyError) as error:
            self._said.append(f"warning: a report makes no sense, and is left aside: {error}")
        if self.verbose and report.startswith(("ended", "killed", "refused")):
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
        """A rank writes output, or uses the processor."""
        if rank in self._lingering:
            self._lingers_since = self.clock()

    def signalled(self, number: int) -> None:
        """A signal asks this process to end. Ranks get the same signal; later signals are ignored."""
        if not self.interrupt:
            self.interrupt = number
            if self._trouble is None:
                self._end_by = number
            self._stop(128 + number, f"stopped by {signal_name(number)}, all ranks were ended")

    def lose_output(self, error: OutputError) -> None:
        """The output has no reader any more (`horovodrun ... | head`), or writing fails."""
        if error.is_closed:
            self._stop(OUTPUT_CLOSED, "")
        else:
            self._stop(OUTPUT_FAILED, f"{error}; all ranks were ended")

    def end_elastic(self, why: str) -> None:
        """The membership machine has ended its job for this reason."""
        if isinstance(self.outcome, ElasticOutcome):
            self.outcome.why = why

    def tick(self, now: float) -> list[str]:
        """Call several times a second; return lines to print."""
        outcome = self.outcome
        if self._start_by is not None and now > self._start_by and not outcome.has_failure():
            self._start_by = None
            self._stop(
                1,
                f"{outcome.missing_start()} did not start within {self.start_timeout:g} s. "
                "Likely causes: a host is down or asks for a password; a firewall; too slow a file system "
                "(raise --start-timeout)",
            )
        if self._news_at is not None and now > self._news_at:
            self._news_at = now + time_limits.NEWS_OF_START
            self._said.append(f"{len(outcome.hosts)} of {self.ranks} ranks have started")
        wait = outcome.waits_in_vain()
        self._vain_since = (self._vain_since or now) if wait else None
        if self._vain_since is not None and now - self._vain_since > wait:
            self._end_after(0.0)
        self._heed_lingering(now)
        said, self._said = self._said, []
        return said

    def ends_by(self, now: float) -> int | None:
        """Return the signal by which the job must end now, once; else None."""
        if self._is_ended or self._end_at is None or now < self._end_at:
            return None
        self._is_ended = self.outcome.is_over = True
        return self._end_by

    def ending(self, code: int) -> Ending:
        """Return the ending, when all is over. `code`: of the job, before a rank is blamed."""
        code, message = self._trouble or self.outcome.conclusion(code)
        culprit = None if self._trouble else self.outcome.culprit()
        ends = {rank: end.exit_code() for rank, end in self.outcome.ends.items()}
        return Ending(code, message, culprit, self._values, ends)

    def _heed_lingering(self, now: float) -> None:
        """End idle ranks that alone keep the job alive. A pause of this process restarts their time limit."""
        limit = self.exit_timeout
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
        at = self.clock() + seconds
        self._end_at = at if self._end_at is None else min(at, self._end_at)
