"""The results table: a row for each algorithm, number of ranks and place, with mean and spread over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import mean, median, stdev

from horovod.lab import errors
from horovod.lab.runs import SERIAL, THIS_HOST, Run


@dataclass(frozen=True)
class Figure:
    mean: float
    spread: float | None  # sample standard deviation over seeds; None with one seed

    def times(self, factor: float) -> Figure:
        return Figure(self.mean * factor, None if self.spread is None else self.spread * factor)


@dataclass(frozen=True)
class Row:
    """The figures of runs that differ only in their seed; None if a figure has no meaning.

    The mean of a quotient is the quotient of the means, so that readers can check it with the table.
    """

    place: str
    algorithm: str  # "serial", or the compression
    ranks: int
    runs: tuple[Run, ...]  # one per seed
    training_seconds: Figure
    step_seconds: Figure  # the median step
    accuracy: Figure  # at the end, 0 to 1
    wait_seconds: Figure | None  # the median wait in a step; None when serial
    speed_up: Figure | None  # against serial; None without it
    efficiency: Figure | None  # speed_up / ranks
    bytes_per_step: Figure | None  # sent by rank 0; None when serial
    # Bytes per step of "none" with the same ranks at the same place over this row's; None without either.
    compression_ratio: Figure | None


def table(runs: Sequence[Run]) -> list[Row]:
    """A row for each (place, algorithm, ranks), in the order of their first runs.

    ValueError, which names a run, if runs cannot be compared: other data or epochs, or the same seed twice.
    """
    _check(runs)
    groups: dict[tuple[str, str, int], list[Run]] = {}
    for run in runs:
        groups.setdefault(_key(run), []).append(run)
    serial = groups.get((THIS_HOST, SERIAL, 1))
    rows = []
    for key, group in groups.items():
        place, _, ranks = key
        plain = groups.get((place, "none", ranks)) if ranks > 1 else None
        rows.append(_row(key, group, serial, plain))
    return rows


def _key(run: Run) -> tuple[str, str, int]:
    return run.plan.place, run.plan.algorithm, run.plan.ranks


def _check(runs: Sequence[Run]) -> None:
    seen: dict[tuple[tuple[str, str, int], int], Run] = {}
    for run in runs:
        first = runs[0]
        for field, one, other in (
            ("data set", first.dataset, run.dataset),
            ("number of epochs", first.plan.epochs, run.plan.epochs),
            ("number of threads", first.plan.threads, run.plan.threads),
        ):
            if one != other:
                paths = {"path": str(run.folder), "other": str(first.folder)}
                raise errors.runs_differ(**paths, field=field, got=other, expected=one)
        which = (_key(run), run.plan.seed)
        if which in seen:
            raise errors.same_run(path=str(run.folder), other=str(seen[which].folder))
        seen[which] = run


def _row(
    key: tuple[str, str, int], runs: list[Run], serial: list[Run] | None, plain: list[Run] | None
) -> Row:
    place, algorithm, ranks = key
    speed_up = _quotient(serial, runs, lambda run: run.training_seconds) if serial else None
    return Row(
        place=place,
        algorithm=algorithm,
        ranks=ranks,
        runs=tuple(runs),
        training_seconds=_figure(runs, lambda run: run.training_seconds),
        step_seconds=_figure(runs, lambda run: median(run.step_seconds)),
        accuracy=_figure(runs, lambda run: run.accuracy),
        wait_seconds=_figure(runs, lambda run: median(run.step_waits)) if ranks > 1 else None,
        speed_up=speed_up,
        efficiency=speed_up.times(1 / ranks) if speed_up else None,
        bytes_per_step=_figure(runs, _bytes_per_step) if ranks > 1 else None,
        compression_ratio=_quotient(plain, runs, _bytes_per_step) if plain else None,
    )


def _bytes_per_step(run: Run) -> float:
    return run.bytes_sent / len(run.step_seconds)


def _figure(runs: Sequence[Run], value: Callable[[Run], float]) -> Figure:
    return _over_seeds([value(run) for run in runs])


def _over_seeds(values: Sequence[float]) -> Figure:
    return Figure(mean(values), stdev(values) if len(values) > 1 else None)


def _quotient(base: Sequence[Run], runs: Sequence[Run], value: Callable[[Run], float]) -> Figure | None:
    """The base's mean over the runs' mean; the spread is that of the base's mean over each run's value."""
    above, below = mean(map(value, base)), [value(run) for run in runs]
    if not all(below):
        return None
    return Figure(above / mean(below), _over_seeds([above / each for each in below]).spread)
