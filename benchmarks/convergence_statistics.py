"""Statistics of runs that differ only in compression, paired by seed.

Two runs of one seed see the same batches and begin with the same parameters. The seed's effect therefore
cancels in their difference, and a few seeds bound its mean narrowly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def paired(
    runs: Mapping[int, Mapping[str, Any]], baseline: Mapping[int, Mapping[str, Any]], judged_by: str
) -> list[float]:
    """Return by how much each seed's run exceeds the baseline's run of that seed.

    In percent of the baseline's for a loss, in percentage points for an accuracy. Seeds that only one of the
    two has are left out.
    """
    pairs = [(runs[seed][judged_by], baseline[seed][judged_by]) for seed in sorted(runs.keys() & baseline)]
    if judged_by == "accuracy":
        return [100 * (ours - theirs) for ours, theirs in pairs]
    return [100 * (ours / theirs - 1) for ours, theirs in pairs]


def first_reached(run: Mapping[str, Any], judged_by: str, target: float, spent: str) -> float:
    """Return the "step", "seconds" or "bytes_sent" that a run took to its target, NaN if it never did.

    Interpolates linearly between two points of the curve.
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
