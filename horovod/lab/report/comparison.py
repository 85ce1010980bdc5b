"""What follows from a results table: which rows compare with which, and by how much they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.lab.environment import Environment
from horovod.lab.results import Figure, Row
from horovod.lab.runs import SERIAL, THIS_HOST

__all__ = [
    *("CLEAR", "Pair", "crowded_rows", "differs", "is_made_here", "pairs", "serial_row", "steps_per_epoch"),
    *("undivided_rows", "usable_cores"),
]

UNCOMPRESSED = "none"
CLEAR = 0.05  # a difference below this share is not called one: runs on a shared machine differ by as much
SAVING = 1.05  # a compression ratio below this saved no bytes worth speaking of


@dataclass(frozen=True)
class Pair:
    """Training with a compression, and without, that have place and number of ranks in common."""

    plain: Row
    compressed: Row

    @property
    def saved_time(self) -> float:
        """The share of the plain row's training time; negative when compression took longer."""
        return 1 - self.compressed.training_seconds.mean / self.plain.training_seconds.mean

    @property
    def is_faster(self) -> bool:
        return self.saved_time > 0 and differs(self.compressed.training_seconds, self.plain.training_seconds)

    @property
    def is_slower(self) -> bool:
        return self.saved_time < 0 and differs(self.compressed.training_seconds, self.plain.training_seconds)

    @property
    def has_spread(self) -> bool:
        """Whether seeds tell how much of a difference in time is chance."""
        return None not in (self.compressed.training_seconds.spread, self.plain.training_seconds.spread)

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
    def accuracy_change(self) -> float:
        return self.compressed.accuracy.mean - self.plain.accuracy.mean


def differs(one: Figure, other: Figure) -> bool:
    """Whether two figures differ by more than `CLEAR`, and by more than twice the larger spread.

    Where one has no spread, being of one seed, that is what was measured and may still be chance.
    """
    spread = max(one.spread or 0.0, other.spread or 0.0)
    return abs(one.mean - other.mean) > max(CLEAR * abs(other.mean), 2 * spread)


def serial_row(rows: Sequence[Row]) -> Row | None:
    return next((row for row in rows if row.algorithm == SERIAL), None)


def pairs(rows: Sequence[Row]) -> list[Pair]:
    plain = {(row.place, row.ranks): row for row in rows if row.algorithm == UNCOMPRESSED}
    return [
        Pair(plain[row.place, row.ranks], row)
        for row in rows
        if row.algorithm not in (SERIAL, UNCOMPRESSED) and (row.place, row.ranks) in plain
    ]


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
