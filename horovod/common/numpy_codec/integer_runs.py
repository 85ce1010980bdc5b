"""Whole runs of ``int8`` and ``int4``: small integers with one float32 scale per block.

The twin of ``horovod/native/codec/integers.h``. An element is ``code * scale``. The scale is the block's
largest magnitude over 127 or 7, at least 2^-126, and small enough that no product overflows: all arithmetic
below is on normal float32 numbers.

Blocks of ``int4`` may be rotated (``horovod/native/codec/rotation.h``): random signs, a Walsh-Hadamard
transform, then codes. The transform spreads every element over its block: an outlier no longer spoils its
neighbours, and any values become nearly Gaussian, for which Lloyd-Max levels are optimal (Lloyd 1957, Max
1960). Only full blocks are rotated; a shorter tail is plain int4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec import runs
from horovod.common.numpy_codec.minifloat import FLOAT32_INFINITY, Float32s, Integers, multiplied
from horovod.common.numpy_codec.runs import Bytes

INT8 = runs.Layout(scale_bytes=4, bits=8)
INT4 = runs.Layout(scale_bytes=4, bits=4)
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
# Upper half of the 16 levels with the least square error for a unit Gaussian, and their thresholds.
LLOYD_LEVELS = np.array([0.128395036, 0.388048291, 0.656759143, 0.942340434,
                         1.25623119, 1.6180464, 2.06901717, 2.73258948], np.float32)
LLOYD_THRESHOLDS = np.array([0.258221656, 0.522403717, 0.799549758, 1.09928584,
                             1.4371388, 1.84353185, 2.40080333], np.float32)
FLT_MAX = np.finfo(np.float32).max


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
    runs.check_block_size(block_size)
    amax = runs.largest_magnitudes(values, block_size, finite_only=True).view(np.float32)
    scales = integer_scales(amax, INT8_LARGEST)
    inverse = runs.per_element(np.float32(1) / scales, block_size, values.size)
    finite = np.isfinite(values)
    quotient = np.where(finite, values, np.float32(0)) * inverse
    codes = np.where(finite, rounded(quotient, INT8_LARGEST, random), INT8_NAN).astype(np.int8)
    return np.concatenate([scales.view(np.uint8), codes.view(np.uint8)])


def int8_decode(run: Bytes, count: int, block_size: int = 128) -> Float32s:
    scales, code_bytes = runs.split_run(run, INT8, count, block_size)
    codes = code_bytes.view(np.int8)
    scale = runs.per_element(scales.copy().view(np.float32), block_size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.where(codes == INT8_NAN, np.float32(np.nan), codes.astype(np.float32) * scale))


def int4_encode(
    x: ArrayLike, block_size: int = 128, prescale: float = 1.0, random: NDArray[np.uint32] | None = None
) -> Bytes:
    """The run of ``x * prescale``: a float32 scale per block, then two codes per byte."""
    values = multiplied(x, prescale)
    runs.check_block_size(block_size)
    scales, codes = int4_codes(values, block_size, random)
    return np.concatenate([scales.view(np.uint8), runs.packed(codes & 15, INT4.bits)])


def int4_codes(
    values: Float32s, block_size: int, random: NDArray[np.uint32] | None
) -> tuple[Float32s, Integers]:
    """Scales and codes of float32 values. A non-finite value makes its block's scale NaN and its codes 0."""
    amax = runs.largest_magnitudes(values, block_size, finite_only=False)
    is_finite = amax < FLOAT32_INFINITY
    scales = integer_scales(np.where(is_finite, amax, 0).astype(np.uint32).view(np.float32), INT4_LARGEST)
    keep = runs.per_element(is_finite, block_size, values.size)
    inverse = runs.per_element(np.float32(1) / scales, block_size, values.size)
    quotient = np.where(keep, values, np.float32(0)) * inverse
    codes = np.where(keep, rounded(quotient, INT4_LARGEST, random), 0)
    return np.where(is_finite, scales, np.float32(np.nan)), codes


def int4_decode(run: Bytes, count: int, block_size: int = 128) -> Float32s:
    scale_bytes, pairs = runs.split_run(run, INT4, count, block_size)
    scale = runs.per_element(scale_bytes.copy().view(np.float32), block_size, count)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(integers_of(runs.unpacked(pairs, INT4.bits, count)) * scale)


def integers_of(nibbles: NDArray[np.uint8]) -> Float32s:
    """The values of four bits in two's complement, as float32."""
    return np.where(nibbles < 8, nibbles, nibbles.astype(np.int64) - 16).astype(np.float32)


def hadamard(x: Float32s) -> Float32s:
    """The Walsh-Hadamard transform of each row, without 1 / sqrt(n). The order of additions is fixed."""
    n = x.shape[1]
    for _ in range(n.bit_length() - 1):
        first, second = x[:, : n // 2], x[:, n // 2 :]
        x = np.stack([first + second, first - second], axis=2).reshape(-1, n)
    return x


def with_signs(x: Float32s, signs: NDArray[np.uint32]) -> Float32s:
    return np.asarray((x.view(np.uint32) ^ signs).view(np.float32))


def lloyd_steps(t: Float32s) -> Float32s:
    """The square root of each row's sum of squares, summed in 16 lanes and then pairwise."""
    lanes = np.zeros((t.shape[0], 16), np.float32)
    for start in range(0, t.shape[1], 16):
        lanes += t[:, start : start + 16] * t[:, start : start + 16]
    for width in (8, 4, 2, 1):
        lanes = lanes[:, :width] + lanes[:, width : 2 * width]
    return np.asarray(np.sqrt(lanes[:, 0]))


def lloyd_codes(quotient: Float32s) -> Integers:
    """Sign and index of the cell: the number of thresholds that the magnitude exceeds."""
    index = (np.abs(quotient)[..., None] > LLOYD_THRESHOLDS).sum(axis=-1)
    return np.asarray(index + 8 * np.signbit(quotient))


def lloyd_values(nibbles: NDArray[np.uint8]) -> Float32s:
    level = LLOYD_LEVELS[nibbles & 7]
    return np.asarray(np.where(nibbles < 8, level, -level), dtype=np.float32)


def rotated_encode(
    x: ArrayLike,
    block_size: int = 128,
    prescale: float = 1.0,
    seed: int = 0,
    lloyd: bool = False,
    random: NDArray[np.uint32] | None = None,
) -> Bytes:
    """The run of ``x * prescale``, with the signs of `seed`."""
    values = multiplied(x, prescale)
    runs.check_block_size(block_size)
    full = values.size // block_size * block_size
    numbers = None if random is None else random[:full].reshape(-1, block_size)
    signs = runs.rotation_signs(seed, block_size)
    scales, codes = rotated_codes(values[:full].reshape(-1, block_size), signs, lloyd, numbers)
    tail_scales, tail_codes = int4_codes(values[full:], block_size, None if random is None else random[full:])
    pairs = runs.packed(np.concatenate([codes.ravel(), tail_codes]) & 15, INT4.bits)
    return np.concatenate([scales.view(np.uint8), tail_scales.view(np.uint8), pairs])


def rotated_codes(
    x: Float32s, signs: NDArray[np.uint32], lloyd: bool, random: NDArray[np.uint32] | None
) -> tuple[Float32s, Integers]:
    """Scales and codes of full blocks, one per row."""
    n = x.shape[1]
    is_finite = np.asarray(np.isfinite(x).all(axis=1))
    x = np.where(is_finite[:, None], x, np.float32(0))
    amax = np.abs(x).max(axis=1)
    # A power of two brings the largest element near one: neither sums nor squares overflow or underflow.
    exponent = np.clip(amax.view(np.uint32) >> 23, 15, 253).astype(np.int64) - 127
    t = with_signs(x, signs) * np.ldexp(np.float32(1), -exponent)[:, None]
    y = hadamard(t)
    step = lloyd_steps(t) if lloyd else np.abs(y).max(axis=1) / np.float32(INT4_LARGEST)
    scales = np.maximum(step * np.ldexp(np.float32(1) / np.float32(n), exponent), SMALLEST_SCALE)
    inverse = np.float32(1) / (scales * np.ldexp(np.float32(n), -exponent))
    quotient = y * inverse[:, None]
    codes = lloyd_codes(quotient) if lloyd else rounded(quotient, INT4_LARGEST, random)
    scales = np.where(amax == 0, np.float32(0), scales)
    return np.where(is_finite, scales, np.float32(np.nan)), np.where(is_finite[:, None], codes, 0)


def rotated_decode(
    run: Bytes, count: int, block_size: int = 128, seed: int = 0, lloyd: bool = False
) -> Float32s:
    scale_bytes, pairs = runs.split_run(run, INT4, count, block_size)
    full = count // block_size * block_size
    split = full // block_size * 4
    nibbles = runs.unpacked(pairs[: full // 2], INT4.bits, full).reshape(-1, block_size)
    y = hadamard(lloyd_values(nibbles) if lloyd else integers_of(nibbles))
    with np.errstate(over="ignore", invalid="ignore"):
        x = y * scale_bytes[:split].copy().view(np.float32)[:, None]
    x = np.where(np.isnan(x), x, np.clip(x, -FLT_MAX, FLT_MAX))
    values = with_signs(x, runs.rotation_signs(seed, block_size)).ravel()
    tail = np.concatenate([scale_bytes[split:], pairs[full // 2 :]])
    return np.concatenate([values, int4_decode(tail, count - full, block_size)])
