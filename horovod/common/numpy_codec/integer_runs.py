"""Whole runs of ``int8`` and ``int4``: small integers with one float32 scale per block.

The twin of ``horovod/native/codec/integers.h``. An element is ``code * scale``. The scale is the block's
largest magnitude over 127 or 7, at least 2^-126, and small enough that no product overflows: all arithmetic
below is on normal float32 numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec.minifloat import FLOAT32_INFINITY, Float32s, Integers, multiplied
from horovod.common.numpy_codec.runs import (
    Bytes,
    Layout,
    check_block_size,
    largest_magnitudes,
    packed,
    per_element,
    split_run,
    unpacked,
)

__all__ = ["int4_decode", "int4_encode", "int8_decode", "int8_encode"]

INT8 = Layout(scale_bytes=4, bits=8)
INT4 = Layout(scale_bytes=4, bits=4)
INT8_LARGEST = 127
INT4_LARGEST = 7
INT8_NAN = -128
SMALLEST_SCALE = np.float32(2.0**-126)
# The largest scales whose products with 127 and 7 are finite.
LARGEST_SCALES = {
    INT8_LARGEST: np.float32(0x810203 * 2.0**98),
    INT4_LARGEST: np.finfo(np.float32).max / np.float32(7),
}
RANDOM_BITS = 24


def integer_scales(amax: Float32s, largest: int) -> Float32s:
    """``amax / largest`` in float32, at least 2^-126, and small enough that ``largest * scale`` is finite."""
    scales = np.maximum(amax, np.float32(largest) * SMALLEST_SCALE) / np.float32(largest)
    return np.asarray(np.minimum(scales, LARGEST_SCALES[largest]))


def rounded(quotient: Float32s, largest: int, random: NDArray[np.uint32] | None) -> Integers:
    """The integers nearest to finite quotients, ties to even; with random numbers, stochastically.

    Then the magnitude, cut to 24 bits after the point, is rounded up if these bits plus the number's upper 24
    bits carry.
    """
    if random is None:
        return np.asarray(np.rint(quotient).astype(np.int64))
    fixed_point = np.floor(np.abs(quotient).astype(np.float64) * 2.0**RANDOM_BITS).astype(np.int64)
    magnitude = (fixed_point + (random.astype(np.int64) >> (32 - RANDOM_BITS))) >> RANDOM_BITS
    return np.asarray(np.copysign(np.minimum(magnitude, largest), quotient).astype(np.int64))


def int8_encode(
    x: ArrayLike, block_size: int = 128, prescale: float = 1.0, random: NDArray[np.uint32] | None = None
) -> Bytes:
    """The run of ``x * prescale``: a float32 scale per block, then a byte per element; -128 is NaN."""
    values = multiplied(x, prescale)
    check_block_size(block_size)
    amax = largest_magnitudes(values, block_size, finite_only=True).view(np.float32)
    scales = integer_scales(amax, INT8_LARGEST)
    inverse = per_element(np.float32(1) / scales, block_size, values.size)
    finite = np.isfinite(values)
    quotient = np.where(finite, values, np.float32(0)) * inverse
    codes = np.where(finite, rounded(quotient, INT8_LARGEST, random), INT8_NAN).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)])


def int8_decode(run: Bytes, count: int, block_size: int = 128) -> Float32s:
    """The ``count`` values of an int8 run."""
    scales, code_bytes = split_run(run, INT8, count, block_size)
    codes = code_bytes.view(np.int8)
    scale = per_element(scales.copy().view(np.float32), block_size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(codes == INT8_NAN, np.float32(np.nan), codes.astype(np.float32) * scale))


def int4_encode(
    x: ArrayLike, block_size: int = 128, prescale: float = 1.0, random: NDArray[np.uint32] | None = None
) -> Bytes:
    """The run of ``x * prescale``: a float32 scale per block, then two codes per byte."""
    values = multiplied(x, prescale)
    check_block_size(block_size)
    scales, codes = int4_codes(values, block_size, random)
    return np.concatenate([scales.view(np.uint8), packed(codes & 15, INT4.bits)])


def int4_codes(
    values: Float32s, block_size: int, random: NDArray[np.uint32] | None
) -> tuple[Float32s, Integers]:
    """Scales and codes of float32 values. A non-finite value makes its block's scale NaN and its codes 0."""
    amax = largest_magnitudes(values, block_size, finite_only=False)
    is_finite = amax < FLOAT32_INFINITY
    scales = integer_scales(np.where(is_finite, amax, 0).astype(np.uint32).view(np.float32), INT4_LARGEST)
    keep = per_element(is_finite, block_size, values.size)
    inverse = per_element(np.float32(1) / scales, block_size, values.size)
    quotient = np.where(keep, values, np.float32(0)) * inverse
    codes = np.where(keep, rounded(quotient, INT4_LARGEST, random), 0)
    return np.where(is_finite, scales, np.float32(np.nan)), codes


def int4_decode(run: Bytes, count: int, block_size: int = 128) -> Float32s:
    """The ``count`` values of an int4 run."""
    scale_bytes, pairs = split_run(run, INT4, count, block_size)
    scale = per_element(scale_bytes.copy().view(np.float32), block_size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(integers_of(unpacked(pairs, INT4.bits, count)) * scale)


def integers_of(nibbles: NDArray[np.uint8]) -> Float32s:
    """The values of four bits in two's complement, as float32."""
    return np.where(nibbles < 8, nibbles, nibbles.astype(np.int64) - 16).astype(np.float32)
