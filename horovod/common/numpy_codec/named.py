"""Codecs by the names that ranks compare: ``bit16``, ``bit8/128``, ``int4/128/stochastic/hadamard/seed7``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common import errors
from horovod.common.numpy_codec import bit_runs, float6, integer_runs, rotation
from horovod.common.numpy_codec.minifloat import Float32s
from horovod.common.numpy_codec.random_bits import random_numbers
from horovod.common.numpy_codec.runs import Bytes, Layout, check_block_size, check_count

__all__ = ["FORMATS", "NamedCodec", "encoded_bytes", "named_codec"]


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
        return FORMATS[self.format].encode(self, x, prescale, random)

    def decode(self, run: Bytes, count: int) -> Float32s:
        """The ``count`` values of a run."""
        return FORMATS[self.format].decode(self, run, count)


class _Format(NamedTuple):
    layout: Layout
    encode: Callable[[NamedCodec, ArrayLike, float, NDArray[np.uint32] | None], Bytes]
    decode: Callable[[NamedCodec, Bytes, int], Float32s]


def _int4_encode(c: NamedCodec, x: ArrayLike, scale: float, random: NDArray[np.uint32] | None) -> Bytes:
    if c.rotated:
        return rotation.rotated_encode(x, c.block_size, scale, c.seed, c.lloyd, random)
    return integer_runs.int4_encode(x, c.block_size, scale, random)


def _int4_decode(c: NamedCodec, run: Bytes, count: int) -> Float32s:
    if c.rotated:
        return rotation.rotated_decode(run, count, c.block_size, c.seed, c.lloyd)
    return integer_runs.int4_decode(run, count, c.block_size)


# The formats of horovod/native/codec/format_list.h, in its order.
FORMATS = {
    "bit16": _Format(
        bit_runs.SIXTEEN_BITS,
        lambda c, x, scale, random: bit_runs.bit16_encode(x, scale),
        lambda c, run, count: bit_runs.bit16_decode(run, count),
    ),
    "fp16": _Format(
        bit_runs.SIXTEEN_BITS,
        lambda c, x, scale, random: bit_runs.fp16_encode(x, scale),
        lambda c, run, count: bit_runs.bit16_decode(run, count),
    ),
    "bf16": _Format(
        bit_runs.SIXTEEN_BITS,
        lambda c, x, scale, random: bit_runs.bf16_encode(x, scale),
        lambda c, run, count: bit_runs.bf16_decode(run, count),
    ),
    "bit8": _Format(
        bit_runs.BIT8,
        lambda c, x, scale, random: bit_runs.bit8_encode(
            x, c.block_size, scale, bit_runs.VARIANTS[c.variant], random
        ),
        lambda c, run, count: bit_runs.bit8_decode(run, count, c.block_size, bit_runs.VARIANTS[c.variant]),
    ),
    "int8": _Format(
        integer_runs.INT8,
        lambda c, x, scale, random: integer_runs.int8_encode(x, c.block_size, scale, random),
        lambda c, run, count: integer_runs.int8_decode(run, count, c.block_size),
    ),
    "float6": _Format(
        float6.FLOAT6,
        lambda c, x, scale, random: float6.float6_encode(x, c.block_size, scale, random),
        lambda c, run, count: float6.float6_decode(run, count, c.block_size),
    ),
    "int4": _Format(integer_runs.INT4, _int4_encode, _int4_decode),
}


def encoded_bytes(name: str, count: int, block_size: int = 128) -> int:
    """Length of a run of ``count`` elements: scales of ceil(count / block_size) blocks, then the codes."""
    check_count(count)
    if name not in FORMATS:
        raise errors.no_codec(codec=name, choices=list(FORMATS))
    layout = FORMATS[name].layout
    if layout.scale_bytes:
        check_block_size(block_size)
    return layout.run_bytes(count, block_size)


def named_codec(name: str) -> NamedCodec:
    """The codec that a native codec's ``name`` describes; ValueError if it describes none."""
    fmt, *options = name.split("/")
    if fmt not in FORMATS or (FORMATS[fmt].layout.scale_bytes == 0) == bool(options):
        raise errors.no_codec_name(codec=name)
    if not options:
        return NamedCodec(fmt)
    block, words = int(options[0]), options[1:]
    seeds = [word for word in words if word.startswith("seed")]
    variants = [word for word in words if word in bit_runs.VARIANTS]
    unknown = set(words) - {"stochastic", "hadamard", "lloyd", *seeds, *variants}
    if unknown:
        raise errors.no_codec_options(codec=name, options=sorted(unknown))
    return NamedCodec(
        fmt,
        block,
        variant=variants[0] if variants else "e4m3",
        stochastic="stochastic" in words,
        rotated="hadamard" in words,
        lloyd="lloyd" in words,
        seed=int(seeds[0].removeprefix("seed")) if seeds else 0,
    )
