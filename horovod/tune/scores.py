"""Scores of blocks from the times of their steps, and the shares of a step."""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.tune import errors

__all__ = ["MODES", "Shares", "Shift", "seconds_of", "shares_of"]

# HOROVOD_AUTOTUNE_MODE: the whole step; without outliers; and the same, with shares printed.
MODES = ("time", "filter", "profile")
_SPREAD = 1.4826  # median absolute deviations in a standard deviation of a normal distribution
_FAR = 5.0  # standard deviations from the median: not noise, but a checkpoint or a log
_LEAST_SPREAD = 0.02  # of the median: if steps are almost equal, a small difference is not an outlier


def seconds_of(steps: Sequence[float], mode: str = "filter") -> float:
    """Return the score of a block's steps, in seconds.

    ``time``: their mean. ``filter`` and ``profile``: the mean without outliers, as an occasional checkpoint
    or log would count against the configuration of that time.

    Raises:
        ValueError: there are no steps, or the mode is unknown.
    """
    if mode not in MODES:
        raise errors.no_score_mode(got=mode, choices=list(MODES))
    if not steps:
        raise errors.no_steps()
    return statistics.fmean(steps if mode == "time" else usual(steps))


def usual(steps: Sequence[float]) -> list[float]:
    """Return the steps that do not take far longer than the median.

    Short steps stay: no chance event makes a step shorter.
    """
    middle = statistics.median(steps)
    spread = _SPREAD * statistics.median(abs(step - middle) for step in steps)
    limit = middle + _FAR * max(spread, _LEAST_SPREAD * middle)
    return [step for step in steps if step <= limit]


@dataclass(frozen=True)
class Shares:
    """The share of communication in a step: ``exposed``, while nothing computes, and ``hidden``.

    ``linearity`` is the step without exposed communication over the step: 1 if ranks do not slow each other.
    """

    exposed: float
    hidden: float
    linearity: float

    def __str__(self) -> str:
        return (
            f"communication {self.exposed + self.hidden:.0%} of a step: {self.exposed:.0%} exposed, "
            f"{self.hidden:.0%} hidden; linearity {self.linearity:.2f}"
        )


def shares_of(seconds: float, counted: Mapping[str, int]) -> Shares:
    """Return the shares of ``seconds``, from what ``hvd.metrics()`` has counted in them."""
    moving = min(1.0, counted["collective_microseconds"] / 1e6 / seconds)
    exposed = min(1.0, counted["blocked_microseconds"] / 1e6 / seconds)
    return Shares(exposed, max(0.0, moving - exposed), 1 - exposed)


class Shift:
    """Detects that steps have become permanently longer or shorter, a reason to tune again.

    Medians of windows are compared with that of the first. One window may be chance (other load on the
    machine), so several in a row must lie on one side, further off than the noise between windows.
    """

    _WINDOW, _IN_A_ROW = 20, 5
    _LEAST = 0.1  # of the first window's median

    def __init__(self) -> None:
        self._steps: list[float] = []
        self._first: float | None = None
        self._noise = 0.0
        self._sides: deque[int] = deque(maxlen=self._IN_A_ROW)

    def add(self, seconds: float) -> bool:
        """Return whether this step proves a shift. If so, start again."""
        self._steps.append(seconds)
        if len(self._steps) < self._WINDOW:
            return False
        middle = statistics.median(self._steps)
        deviation = statistics.median(abs(step - middle) for step in self._steps)
        self._steps = []
        if self._first is None:
            self._first, self._noise = middle, _SPREAD * deviation
            return False
        off = middle - self._first
        limit = max(self._LEAST * self._first, 2 * self._noise)
        self._sides.append((off > limit) - (off < -limit))
        is_shifted = abs(sum(self._sides)) == self._IN_A_ROW
        if is_shifted:
            self._first = None
            self._sides.clear()
        return is_shifted
