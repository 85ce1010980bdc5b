"""Codecs by the names that ranks compare: ``bit16``, ``bit8/128``, ``int4/128/stochastic/hadamard/seed7``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec import bit_runs, integer_runs, rotation
from horovod.common.numpy_codec.minifloat import Float32s
from horovod.common.numpy_codec.random_bits import random_numbers
from horovod.common.numpy_codec.runs import Bytes

__all__ = ["NamedCodec", "named_codec"]


@dataclass(frozen=True)
class NamedCodec:
    """A format with its options; encodes and decodes as the native codec of that name does."""

    format: str
    block_size: int = 1
    variant: str = "e4m3"
    stochastic: bool = False
    rotated: bool = False
    lloyd: bool = False
    seed: int = 0

    def encode(self, x: ArrayLike, prescale: float = 1.0, key: int = 0, first: int = 0) -> Bytes:
        """The run of ``x * prescale``; a stochastic codec rounds element i by number first + i."""
        random: NDArray[np.uint32] | None = None
        if self.stochastic:
            random = random_numbers(self.seed, key, first, np.size(x))
        if self.format == "bit16":
            return bit_runs.bit16_encode(x, prescale)
        if self.format == "bit8":
            return bit_runs.bit8_encode(x, self.block_size, prescale, bit_runs.VARIANTS[self.variant], random)
        if self.format == "int8":
            return integer_runs.int8_encode(x, self.block_size, prescale, random)
        if self.rotated:
            return rotation.rotated_encode(x, self.block_size, prescale, self.seed, self.lloyd, random)
        return integer_runs.int4_encode(x, self.block_size, prescale, random)

    def decode(self, run: Bytes, count: int) -> Float32s:
        """The ``count`` values of a run."""
        if self.format == "bit16":
            return bit_runs.bit16_decode(run, count)
        if self.format == "bit8":
            return bit_runs.bit8_decode(run, count, self.block_size, bit_runs.VARIANTS[self.variant])
        if self.format == "int8":
            return integer_runs.int8_decode(run, count, self.block_size)
        if self.rotated:
            return rotation.rotated_decode(run, count, self.block_size, self.seed, self.lloyd)
        return integer_runs.int4_decode(run, count, self.block_size)


def named_codec(name: str) -> NamedCodec:
    """The codec that a native codec's ``name`` describes; ValueError if it describes none."""
    fmt, *options = name.split("/")
    if fmt not in ("bit16", "bit8", "int8", "int4") or (fmt == "bit16") == bool(options):
        raise ValueError(f"{name!r} is not the name of a codec")
    if not options:
        return NamedCodec(fmt)
    block, words = int(options[0]), options[1:]
    seeds = [word for word in words if word.startswith("seed")]
    variants = [word for word in words if word in bit_runs.VARIANTS]
    unknown = set(words) - {"stochastic", "hadamard", "lloyd", *seeds, *variants}
    if unknown:
        raise ValueError(f"{name!r} has options that no codec has: {', '.join(sorted(unknown))}")
    return NamedCodec(
        fmt,
        block,
        variant=variants[0] if variants else "e4m3",
        stochastic="stochastic" in words,
        rotated="hadamard" in words,
        lloyd="lloyd" in words,
        seed=int(seeds[0].removeprefix("seed")) if seeds else 0,
    )
