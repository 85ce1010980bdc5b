"""The slow NumPy twin of the core's error feedback, and of the keys of its random numbers."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import oracle
from numpy.typing import NDArray
from ranks import AVERAGE, SUM, tensor

from horovod import _native
from horovod.common import numpy_codec

Array = NDArray[Any]
MASK64 = 2**64 - 1
BLOCK = 32
CODEC = f"bit8/{BLOCK}"


def draw_key(name: str, use: int) -> int:
    """The key of random numbers for reduction number ``use`` of ``name``: FNV-1a, SplitMix64."""
    key = 0xCBF29CE484222325
    for byte in name.encode():
        key = (key ^ byte) * 0x100000001B3 & MASK64
    return mixed(key, use)


def mixed(a: int, b: int) -> int:
    x = (a + 0x9E3779B97F4A7C15 * (b + 1)) & MASK64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK64
    return x ^ (x >> 31)


class Bound:
    """The bound of residuals: residuals of an outlier become 0, as do non-finite ones."""

    MOST, RISE, DECAY = (np.float32(factor) for factor in (30, 10, 0.99))

    def __init__(self) -> None:
        self.usual = np.float32(0)

    def kept(self, lost: Array) -> Array:
        limit = self.usual * self.MOST if self.usual else np.finfo(np.float32).max
        magnitudes = np.abs(lost)
        largest = magnitudes.max(initial=0)
        if largest > 0 and np.isfinite(largest):
            least, most = self.usual * self.DECAY, self.usual * self.RISE
            self.usual = min(max(largest, least), most) if self.usual else largest
        return np.where(magnitudes <= limit, lost, np.float32(0))


class ErrorFeedback:
    """Compressed allreduces of the tensor "x" on all ranks; each step adds the errors of earlier steps.

    Residuals are float32: ``sent`` by rank, ``result`` for the slices of all owners together. ``parties``
    are the ranks of each contribution: several if a host contributes its sum. ``bounds`` apply to sent
    residuals by contribution, and to results by slice; contributions and slices are equally many.
    """

    def __init__(self, parties: list[list[int]], count: int, codec: str) -> None:
        self.codec, self.parties = numpy_codec.named_codec(codec), parties
        self.sent = [np.zeros(count, np.float32) for _ in parties]
        self.result = np.zeros(count, np.float32)
        self.bounds = [[Bound()] for _ in parties]
        self.result_bounds = [Bound() for _ in parties]
        self.uses = 0

    def _coded(self, wanted: Array, residual: Array, key: int, bounds: list[Bound]) -> Array:
        with np.errstate(invalid="ignore"):
            got = self.codec.decode(self.codec.encode(wanted, 1.0, key), wanted.size)
            lost = wanted - got
            for part, bound in enumerate(bounds):
                own = self._slice(wanted.size, part, len(bounds))
                residual[own] = bound.kept(lost[own])
        return got

    def _slice(self, count: int, part: int, parts: int) -> slice:
        def boundary(k: int) -> int:
            even = count // parts * k + count % parts * k // parts
            return count if k == parts else even // BLOCK * BLOCK

        return slice(boundary(part), boundary(part + 1))

    def allreduce(
        self, xs: list[Array], op: int = SUM, prescale: float = 1.0, postscale: float = 1.0
    ) -> Array:
        wide = np.float64 if xs[0].dtype == np.float64 else np.float32
        key = mixed(draw_key("x", self.uses), 0)
        self.uses += 1
        parts = []
        for ranks, residual, bound in zip(self.parties, self.sent, self.bounds, strict=True):
            summed = reduce(
                np.add, (x.astype(np.float32).ravel() * np.float32(prescale) for x in (xs[r] for r in ranks))
            )
            parts.append(
                self._coded(summed + residual, residual, mixed(mixed(key, 0), ranks[0]), bound).astype(wide)
            )
        with np.errstate(invalid="ignore"):
            total = oracle.scaled(reduce(np.add, parts), postscale, len(xs) if op == AVERAGE else 1.0)
        if len(parts) > 2:
            wanted = total.astype(np.float32) + self.result
            total = self._coded(wanted, self.result, mixed(key, 1), self.result_bounds)
        return total.astype(xs[0].dtype).reshape(xs[0].shape)


def bit8() -> _native.Codec:
    return _native.get_codec("bit8", BLOCK)


def each(size: int) -> list[list[int]]:
    """Parties of which each is one rank."""
    return [[rank] for rank in range(size)]


def residual(feedback: _native.Feedback, stage: str) -> tuple[int, Array]:
    begin, values = feedback.read(stage)
    return begin, np.from_dlpack(values)


def whole(feedback: _native.Feedback, stage: str) -> Array:
    """A stage's residuals of all elements; 0 for elements of other ranks."""
    begin, values = residual(feedback, stage)
    everything = np.zeros(feedback.count, np.float32)
    everything[begin : begin + values.size] = values
    return everything


def step(
    engine: _native.Engine,
    x: Array,
    feedback: _native.Feedback,
    name: str = "x",
    process_set: int = 0,
    codec: _native.Codec | None = None,
    **how: Any,
) -> Array:
    """A blocking out-of-place allreduce with feedback; the default codec is bit8."""
    out = np.empty_like(x)
    reduction = _native.Reduction(codec=codec or bit8(), **how)
    engine.wait(engine.allreduce(name, [tensor(x, out, feedback)], reduction, process_set))
    return out
