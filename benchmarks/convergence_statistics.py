"""Statistics of runs that differ in compression only, paired by seed.

Two runs of one seed see the same batches and begin alike, so what seeds have in common cancels in their
difference, and a few seeds bound its mean narrowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Any

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its 95 % interval: infinite for a single seed."""

    mean: float
    half_width: float
    seeds: int

    @property
    def low(self) -> float:
        return self.mean - self.half_width

    @property
    def high(self) -> float:
        return self.mean + self.half_width


def t_probability(t: float, degrees: int) -> float:
    """P(|T| <= t) of Student's t distribution with a whole number of degrees of freedom.

    Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: exact, a finite sum.
    """
    angle = math.atan(t / math.sqrt(degrees))
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(2 + odd, degrees, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if odd else total


def t_quantile(degrees: int) -> float:
    """The t for which |T| <= t in 95 % of all cases, by bisection; 2.776 for 4 degrees of freedom.

    Raises ValueError for less than one degree of freedom.
    """
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom: an interval takes at least two samples")
    low, high = 0.0, 16.0  # P(|T| <= 16) exceeds 95 % even with one degree of freedom
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, degrees) < CONFIDENCE else (low, middle)
    return (low + high) / 2


def estimate(samples: Sequence[float]) -> Estimate:
    """Mean and 95 % interval of samples that are independent and normally distributed.

    A run that diverged is a NaN among the samples and makes both NaN.
    """
    if len(samples) < 2:
        return Estimate(mean(samples), math.inf, len(samples))
    if not all(map(math.isfinite, samples)):
        return Estimate(math.nan, math.nan, len(samples))
    half_width = t_quantile(len(samples) - 1) * stdev(samples) / math.sqrt(len(samples))
    return Estimate(mean(samples), half_width, len(samples))


def paired(
    runs: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]], judged_by: str
) -> list[float]:
    """How much more each seed's run has than the baseline's run of that seed, both by seed.

    In percent of the baseline's for a loss, in percentage points for an accuracy. Seeds that only one of
    the two has are left out.
    """
    pairs = [(runs[seed][judged_by], baseline[seed][judged_by]) for seed in sorted(runs.keys() & baseline)]
    if judged_by == "accuracy":
        return [100 * (ours - theirs) for ours, theirs in pairs]
    return [100 * (ours / theirs - 1) for ours, theirs in pairs]


def first_reached(run: Mapping[str, Any], judged_by: str, target: float, spent: str) -> float:
    """How much of `spent` ("step", "seconds", "bytes_sent") a run took to its target, NaN if it never did.

    Between two points of its curve both are taken to change linearly.
    """
    sign = 1 if judged_by == "accuracy" else -1
    before = None
    for point in run["curve"]:
        missing = sign * (target - point[judged_by])
        if missing <= 0:
            if before is None:
                return float(point[spent])
            share = before[1] / (before[1] - missing)
            return float(before[0] + share * (point[spent] - before[0]))
        before = (point[spent], missing)
    return math.nan
