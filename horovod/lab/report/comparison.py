"""Comparison of a results table's rows: which rows form a pair, and the meaning of their difference.

Runs are compared seed by seed: they see the same data, and were done close together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from statistics import mean

from horovod.lab.environment import Environment
from horovod.lab.intervals import CONFIDENCE, Estimate, estimate
from horovod.lab.places import made_place
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, THIS_HOST, Run

UNCOMPRESSED = "none"
SAVING = 1.05  # a lower compression ratio saves no significant number of bytes
ALIKE = 0.05  # largest difference in others' load between disturbed runs that are compared
DISTURBED_CONFIDENCE = 0.999  # of intervals from disturbed runs, as the effect of the disturbance is unknown
EXPLAINS = 0.5  # the least share of a gap in time that waiting must make up to explain it


class Conclusion(str, Enum):
    """The conclusion of a comparison with the training without compression."""

    PAID = "paid"  # significantly less time, most of it because ranks waited less
    UNEXPLAINED = "unexplained"  # significantly less time, but not because of fewer bytes
    COST = "cost"  # significantly more time
    UNDECIDED = "undecided"  # the difference may be chance
    UNKNOWN = "unknown"  # fewer than two seeds can be compared


@dataclass(frozen=True)
class Pair:
    """Trainings with and without a compression, at the same place with the same number of ranks.

    cases: the number of such pairs in a report. All its intervals together hold with the stated confidence,
    so each is wider the more pairs there are (Bonferroni).
    """

    plain: Row
    compressed: Row
    cases: int = 1

    @cached_property
    def of_seeds(self) -> list[tuple[Run, Run]]:
        """Runs without and with compression, of one seed, whose times can be compared."""
        return comparable(self.plain, self.compressed)

    @property
    def left_out(self) -> int:
        """Number of seeds that are not compared because other programs were busy."""
        return len(same_seeds(self.plain, self.compressed)) - len(self.of_seeds)

    @property
    def is_disturbed(self) -> bool:
        """Whether there are only disturbed runs to compare."""
        return bool(disturbed_runs(run for both in self.of_seeds for run in both))

    @cached_property
    def time(self) -> Estimate:
        """Logarithm of the time without compression over the time with it: above 0 compression was faster."""
        return log_ratio(self.of_seeds, self.cases)

    @property
    def saved_time(self) -> float:
        """The saved share of the plain training time; negative if compression took longer."""
        if self.of_seeds:
            return saved(self.time.mean)
        return 1 - self.compressed.training_seconds.mean / self.plain.training_seconds.mean

    @property
    def saved_low(self) -> float:
        return saved(self.time.low)

    @property
    def saved_high(self) -> float:
        return saved(self.time.high)

    @cached_property
    def saved_waiting(self) -> Estimate:
        """Seconds of waiting saved per run. Needs a seed to compare."""
        samples = [sum(plain.step_waits) - sum(other.step_waits) for plain, other in self.of_seeds]
        return estimate(samples, confidence(self.of_seeds, self.cases))

    @property
    def explained(self) -> float:
        """The share of the gap in time that the gap in waiting makes up; at most 1."""
        gaps = [plain.training_seconds - other.training_seconds for plain, other in self.of_seeds]
        return min(1.0, self.saved_waiting.mean / mean(gaps)) if mean(gaps) else 0.0

    @property
    def conclusion(self) -> Conclusion:
        if len(self.of_seeds) < 2:
            return Conclusion.UNKNOWN
        if self.time.high < 0:
            return Conclusion.COST
        if not self.time.low > 0:
            return Conclusion.UNDECIDED
        is_explained = self.saves_bytes and self.saved_waiting.low > 0 and self.explained >= EXPLAINS
        return Conclusion.PAID if is_explained else Conclusion.UNEXPLAINED

    @property
    def reason(self) -> str:
        """The conclusion, or its more exact reason."""
        if self.conclusion is Conclusion.UNKNOWN:
            return "unlike" if self.left_out else "one_seed"
        if self.conclusion is Conclusion.UNEXPLAINED and not self.saves_bytes:
            return "same_bytes"
        if self.conclusion is Conclusion.UNEXPLAINED and not self.saved_waiting.low > 0:
            return "by_chance"
        if self.conclusion is Conclusion.COST and self.saves_bytes and self.saved_waiting.high < 0:
            return "coding"
        return self.conclusion

    @property
    def ratio(self) -> float:
        """Bytes of the plain row over bytes of the compressed row; 1 if nothing was sent."""
        return self.compressed.compression_ratio.mean if self.compressed.compression_ratio else 1.0

    @property
    def sends_known_bytes(self) -> bool:
        waits = (self.compressed.wait_seconds, self.plain.wait_seconds)
        return bool(self.compressed.compression_ratio and all(waits) and self.ratio)

    @property
    def saves_bytes(self) -> bool:
        return self.ratio >= SAVING

    @property
    def adds_bytes(self) -> bool:
        return self.ratio <= 1 / SAVING

    @property
    def accuracy_change(self) -> Estimate | None:
        """The change of accuracy over the seeds that both have, disturbed ones included; None without any."""
        found = same_seeds(self.plain, self.compressed)
        if not found:
            return None
        return estimate(
            [other.accuracy - plain.accuracy for plain, other in found], confidence([], self.cases)
        )


def confidence(of_seeds: Sequence[tuple[Run, Run]], cases: int) -> float:
    """The confidence of each of so many intervals that gives all of them together the required one."""
    is_disturbed = disturbed_runs(run for both in of_seeds for run in both)
    return 1 - (1 - (DISTURBED_CONFIDENCE if is_disturbed else CONFIDENCE)) / cases


def same_seeds(one: Row, other: Row) -> list[tuple[Run, Run]]:
    of_seed = {run.plan.seed: run for run in other.runs}
    return [(run, of_seed[run.plan.seed]) for run in one.runs if run.plan.seed in of_seed]


def comparable(one: Row, other: Row) -> list[tuple[Run, Run]]:
    """Runs of one seed whose times can be compared: those without disturbance.

    If there are fewer than two such seeds: runs with about the same load by others.
    """
    found = [
        (first, second)
        for first, second in same_seeds(one, other)
        if min(first.training_seconds, second.training_seconds) > 0
    ]
    quiet = [both for both in found if not disturbed_runs(both)]
    if len(quiet) > 1:
        return quiet
    return [both for both in found if abs(both[0].load.during - both[1].load.during) <= ALIKE]


def log_ratio(of_seeds: Sequence[tuple[Run, Run]], cases: int) -> Estimate:
    """Logarithm of the first runs' times over the second's. Without a seed: 0, with an infinite interval."""
    if not of_seeds:
        return Estimate(0.0, math.inf, 0)
    samples = [math.log(one.training_seconds / other.training_seconds) for one, other in of_seeds]
    return estimate(samples, confidence(of_seeds, cases))


def saved(logarithm: float) -> float:
    """The share of time saved, from a logarithm of times."""
    return -math.expm1(min(-logarithm, 700.0))  # expm1 of more overflows


def is_clearly_faster(row: Row, other: Row, cases: int) -> bool:
    """Whether a row takes significantly less time than another, in one of so many comparisons."""
    return log_ratio(comparable(other, row), cases).low > 0


def disturbed_runs(runs: Iterable[Run]) -> list[Run]:
    return [run for run in runs if run.load.is_disturbing]


def serial_row(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row.algorithm == SERIAL), None)


def pairs(rows: Sequence[Row]) -> list[Pair]:
    plain = {(row.place, row.ranks): row for row in rows if row.algorithm == UNCOMPRESSED}
    compressed = [
        row for row in rows if row.algorithm not in (SERIAL, UNCOMPRESSED) and (row.place, row.ranks) in plain
    ]
    return [Pair(plain[row.place, row.ranks], row, len(compressed)) for row in compressed]


def steps_per_epoch(row: Row) -> float:
    return len(row.runs[0].step_seconds) / row.runs[0].plan.epochs


def divides_steps(row: Row, serial: Row) -> bool:
    """Whether n ranks took an nth of the serial run's steps; either may have an incomplete last step."""
    alone, together = steps_per_epoch(serial), steps_per_epoch(row)
    if together == alone:
        return False
    share = alone / row.ranks
    return abs(together - share) < 1 or abs(share / together - 1) < 0.02


def undivided_rows(rows: Sequence[Row]) -> list[Row]:
    """Parallel rows that, by their steps, used other numbers of examples than the serial run."""
    serial = serial_row(rows)
    if serial is None:
        return []
    return [row for row in rows if row.algorithm != SERIAL and not divides_steps(row, serial)]


def usable_cores(place: str, environment: Environment) -> int | None:
    """The number of cores that all ranks of a place share; None if unknown."""
    hosts = environment.hosts
    if place == THIS_HOST or made_place(place):  # all on this machine
        return hosts[0].usable_cores if hosts else None
    return sum(host.usable_cores for host in hosts) if len(hosts) > place.count(",") else None
