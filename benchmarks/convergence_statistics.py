"""Statistics of runs that differ in compression only, paired by seed.

Two runs of one seed see the same batches and begin alike, so what seeds have in common cancels in their
difference, and a few seeds bound its mean narrowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


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
