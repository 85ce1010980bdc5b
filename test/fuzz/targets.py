"""All parsers of data from outside, by name."""

from __future__ import annotations

import launcher_targets
import message_targets
import record_targets
import tcp_targets
from campaign import Target

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        *(*launcher_targets.TARGETS, *message_targets.TARGETS),
        *(*record_targets.TARGETS, *tcp_targets.TARGETS),
    )
}


def count_of(target: Target, inputs: int) -> int:
    """Return this parser's number of inputs, out of `inputs` for all parsers."""
    return max(1, round(inputs * target.share / sum(each.share for each in TARGETS.values())))
