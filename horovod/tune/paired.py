"""Paired comparison of two configurations, with a confidence bound."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from horovod.tune import errors

__all__ = ["Gain", "gain_of"]

# One-sided quantiles of Student's t: 97.5 % (an interval of 95 %) and 99.5 %, by degrees of freedom 1, 2, ...
_T = {
    0.975: (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
            2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145),
    0.995: (63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499,
            3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977),
}  # fmt: skip
_NORMAL = {0.975: 1.960, 0.995: 2.576}


@dataclass(frozen=True)
class Gain:
    """The speed-up of the second of two, with the bounds of its interval. Above 1: it is faster."""

    ratio: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.ratio:.2f}x ({self.low:.2f} to {self.high:.2f})"


def gain_of(pairs: Sequence[tuple[float, float]], confidence: float = 0.975) -> Gain:
    """Return the gain that pairs of seconds show, each of one block of the first and one of the second.

    Times on one machine vary by factors, so logarithms are averaged. The two of a pair were measured one
    after the other, under the same other load. One pair proves nothing: its interval is unbounded.

    Args:
        confidence: that the gain is above ``low``, and likewise below ``high``: 0.975 or 0.995.

    Raises:
        ValueError: no pairs, or seconds that are not positive.
    """
    if not pairs or any(not (0 < value < math.inf) for pair in pairs for value in pair):
        raise errors.no_pairs(got=list(pairs))
    logs = [math.log(first / second) for first, second in pairs]
    mean = statistics.fmean(logs)
    if len(logs) == 1:
        return Gain(math.exp(mean), 0.0, math.inf, 1)
    table = _T[confidence]
    quantile = table[len(logs) - 2] if len(logs) - 2 < len(table) else _NORMAL[confidence] * 1.1
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = (math.exp(max(-700.0, min(700.0, mean + sign * half))) for sign in (-1, 1))
    return Gain(math.exp(mean), low, high, len(logs))
