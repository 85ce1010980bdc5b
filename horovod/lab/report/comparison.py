"""Comparison of a results table's rows: which rows form a pair, and the meaning of their difference.

Runs are compared seed by seed: they see the same data, and were done one soon after the other.
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
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, THIS_HOST, Run

__all__ = [
    *("ALIKE", "Pair", "Conclusion", "crowded_rows", "disturbed_runs", "is_clearly_faster", "is_made_here"),
    *("pairs", "same_seeds", "saved", "serial_row", "steps_per_epoch", "undivided_rows", "usable_cores"),
]

UNCOMPRESSED = "none"
SAVING = 1.05  # a compression ratio below this saved no bytes worth speaking of
ALIKE = 0.05  # of disturbed runs that are compared: others may take this much more in one than in the other
DISTURBED_CONFIDENCE = 0.999  # of what disturbed runs say, as nobody knows what others did to them
EXPLAINS = 0.5  # the share of a gap in time that waiting must make up to be its explanation


class Conclusion(Enum):
    """The conclusion of a comparison with the training without compression."""

    PAID = "paid"  # less time, which is more than chance, and most of it because ranks waited less
    UNEXPLAINED = "unexplained"  # less time, which is more than chance, and not because of fewer bytes
    COST = "cost"  # more time, which is more than chance
    UNDECIDED = "undecided"  # the difference may be chance
    UNKNOWN = "unknown"  # fewer than two seeds can be compared


@dataclass(frozen=True)
class Pair:
    """Training with a compression, and without, that have place and number of ranks in common.

    cases: how many such pairs a report judges. All its intervals together hold what is true with their
    confidence, so each is wider the more there are (Bonferroni).
    """

    plain: Row
    compressed: Row
    cases: int = 1

    @cached_property
    def of_seeds(self) -> list[tuple[Run, Run]]:
        """Runs without and with compression, of one seed, that can be compared in time."""
        return comparable(self.plain, self.compressed)

    @property
    def left_out(self) -> int:
        """Seeds that are not compared, as other programs were busy."""
        return len(same_seeds(self.plain, self.compressed)) - len(self.of_seeds)

    @property
    def is_disturbed(self) -> bool:
        """Whether there are only disturbed runs to compare."""
        return bool(disturbed_runs(run for both in self.of_seeds for run in both))

    @cached_property
    def time(self) -> Estimate:
        """Of the logarithm of the time without compression by that with it: above 0 it was faster."""
        return log_ratio(self.of_seeds, self.cases)

    @property
    def saved_time(self) -> float:
        """The share of the plain training time; negative when compression took longer."""
        if self.of_seeds:
            return saved(self.time.mean)
        return 1 - self.compressed.training_seconds.mean / self.plain.training_seconds.mean

    @cached_property
    def saved_waiting(self) -> Estimate:
        """Seconds of a run, where there is a seed to compare."""
        samples = [sum(plain.step_waits) - sum(other.step_waits) for plain, other in self.of_seeds]
        return estimate(samples, confidence(self.of_seeds, self.cases))

    @property
    def explained(self) -> float:
        """How much of the gap in time is a gap in waiting; 1 when that is all or more."""
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
    def ratio(self) -> float:
        """How many times fewer bytes the compressed row sent; 1 where nothing was sent at all."""
        return self.compressed.compression_ratio.mean if self.compressed.compression_ratio else 1.0

    @property
    def saves_bytes(self) -> bool:
        return self.ratio >= SAVING

    @property
    def adds_bytes(self) -> bool:
        return self.ratio <= 1 / SAVING

    @property
    def accuracy_change(self) -> Estimate | None:
        """Of the seeds that both have; other programs do not change it. None where they share no seed."""
        found = same_seeds(self.plain, self.compressed)
        if not found:
            return None
        return estimate(
            [other.accuracy - plain.accuracy for plain, other in found], confidence([], self.cases)
        )


def confidence(of_seeds: Sequence[tuple[Run, Run]], cases: int) -> float:
    """That each of so many intervals needs, for all together to have that of such runs."""
    is_disturbed = disturbed_runs(run for both in of_seeds for run in both)
    return 1 - (1 - (DISTURBED_CONFIDENCE if is_disturbed else CONFIDENCE)) / cases


def same_seeds(one: Row, other: Row) -> list[tuple[Run, Run]]:
    of_seed = {run.plan.seed: run for run in other.runs}
    return [(run, of_seed[run.plan.seed]) for run in one.runs if run.plan.seed in of_seed]


def comparable(one: Row, other: Row) -> list[tuple[Run, Run]]:
    """Runs of one seed that can be compared in time: those that nobody disturbed.

    Where there are not two such seeds, those during whose runs others took about as much of the processors.
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
    """Of the first runs' training times by the second's. Without a seed it is 0, and its interval endless."""
    if not of_seeds:
        return Estimate(0.0, math.inf, 0)
    samples = [math.log(one.training_seconds / other.training_seconds) for one, other in of_seeds]
    return estimate(samples, confidence(of_seeds, cases))


def saved(logarithm: float) -> float:
    """The share of time saved, of a logarithm of times."""
    return -math.expm1(min(-logarithm, 700.0))  # beyond it is no float


def is_clearly_faster(row: Row, other: Row, cases: int) -> bool:
    """Whether it takes less time, and that is more than chance, where one is compared with so many others."""
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
    """Whether n ranks took an nth of the serial run's steps; both may have a last step that is not full."""
    alone, together = steps_per_epoch(serial), steps_per_epoch(row)
    if together == alone:
        return False
    share = alone / row.ranks
    return abs(together - share) < 1 or abs(share / together - 1) < 0.02


def undivided_rows(rows: Sequence[Row]) -> list[Row]:
    """Parallel rows that used other numbers of examples than the serial run, as far as steps tell."""
    serial = serial_row(rows)
    if serial is None:
        return []
    return [row for row in rows if row.algorithm != SERIAL and not divides_steps(row, serial)]


def is_made_here(place: str) -> bool:
    """Whether the ranks of a place all run on this machine: in its memory, or on hosts made of it."""
    return place == THIS_HOST or " hosts " in place


def usable_cores(place: str, environment: Environment) -> int | None:
    """The cores that all ranks of a place share; None when the environment does not tell."""
    hosts = environment.hosts
    if is_made_here(place):
        return hosts[0].usable_cores if hosts else None
    return sum(host.usable_cores for host in hosts) if len(hosts) > place.count(",") else None


def crowded_rows(rows: Sequence[Row], environment: Environment) -> list[Row]:
    """Rows whose ranks are more than the cores they share."""
    return [
        row
        for row in rows
        if (cores := usable_cores(row.place, environment)) is not None and row.ranks > cores
    ]
