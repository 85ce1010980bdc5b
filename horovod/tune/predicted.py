"""A model of the communication time that computing does not hide. Only the order of its results counts.

Gradients become ready during the backward pass, in proportion to their bytes. Ready gradients are collected
for a cycle, fused up to the threshold, and sent bucket after bucket. The end of the pass flushes the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Gradients", "exposed_seconds", "predictor"]

FUSION, CYCLE, ALGORITHM = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_ALLREDUCE_ALGORITHM"
# (bytes of a bucket, algorithm) -> seconds
OfBucket = Callable[[int, str], float]


@dataclass(frozen=True)
class Gradients:
    """A step's gradients: their bytes, in the order in which they become ready, and the pass' seconds."""

    sizes: Sequence[int]
    backward: float


def exposed_seconds(
    gradients: Gradients, threshold: int, cycle: float, of_bucket: Callable[[int], float], answer: float
) -> float:
    """Return the seconds of communication after the backward pass. ``answer``: seconds for an agreement."""
    total = sum(gradients.sizes) or 1
    ready, so_far = [], 0
    for size in gradients.sizes:
        so_far += size
        ready.append(gradients.backward * so_far / total)
    free, position = 0.0, 0
    while position < len(ready):
        flush = min(gradients.backward, ready[position] + cycle)
        end = position + 1  # at least one: by rounding the last may be ready after the end of the pass
        while end < len(ready) and ready[end] <= flush:
            end += 1
        for bucket in _fused(gradients.sizes[position:end], threshold):
            free = max(free, flush + answer) + of_bucket(bucket)
        position = end
    return max(0.0, free - gradients.backward)


def _fused(sizes: Sequence[int], threshold: int) -> list[int]:
    """Return the bytes of buckets: neighbours together, up to the threshold; larger tensors alone."""
    buckets: list[int] = []
    for size in sizes:
        if buckets and buckets[-1] + size <= threshold:
            buckets[-1] += size
        else:
            buckets.append(size)
    return buckets


def predictor(
    gradients: Gradients, of_bucket: OfBucket, answer: float
) -> Callable[[Mapping[str, str]], float]:
    """Return the prediction for ``search.look``. Knobs that the model does not know change nothing."""
    known: dict[tuple[int, str], float] = {}
    predicted: dict[tuple[str, str, str], float] = {}

    def seconds(configuration: Mapping[str, str]) -> float:
        algorithm = configuration.get(ALGORITHM, "auto")
        threshold, cycle = configuration.get(FUSION, str(128 << 20)), configuration.get(CYCLE, "1")

        def of_this(size: int) -> float:
            if (size, algorithm) not in known:
                known[size, algorithm] = of_bucket(size, algorithm)
            return known[size, algorithm]

        what = (threshold, cycle, algorithm)
        if what not in predicted:
            predicted[what] = exposed_seconds(gradients, int(threshold), float(cycle) / 1e3, of_this, answer)
        return predicted[what]

    return seconds
