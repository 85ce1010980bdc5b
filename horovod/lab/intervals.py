"""Confidence intervals of means over a few runs, each of which is subject to chance."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from horovod.lab import errors

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds, and half the width of its interval: infinite for a single seed."""

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

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4: exact, a finite sum.
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


@functools.cache
def t_quantile(degrees: int, confidence: float = CONFIDENCE) -> float:
    """The t for which |T| <= t with probability `confidence`, by bisection; 2.776 for 4 degrees and 95 %.

    ValueError for less than one degree of freedom, or a confidence that is not between 0 and 1.
    """
    if degrees < 1:
        raise errors.no_samples(degrees=degrees)
    if not 0 < confidence < 1:
        raise errors.wrong_confidence(got=confidence)
    low, high = 0.0, 16.0
    while t_probability(high, degrees) < confidence:
        high *= 2
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, degrees) < confidence else (low, middle)
    return (low + high) / 2


def estimate(samples: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """Mean and interval of samples that are independent and normally distributed.

    A diverged run is a NaN among the samples and makes both NaN.
    """
    if len(samples) < 2:
        return Estimate(mean(samples), math.inf, len(samples))
    if not all(map(math.isfinite, samples)):
        return Estimate(math.nan, math.nan, len(samples))
    half_width = t_quantile(len(samples) - 1, confidence) * stdev(samples) / math.sqrt(len(samples))
    return Estimate(mean(samples), half_width, len(samples))
