"""Runs of ``int4`` with rotated blocks: random signs, a Walsh-Hadamard transform, then codes.

The twin of ``horovod/native/codec/rotation.h``. The transform spreads every element over its block: an
outlier no longer spoils its neighbours, and any values become nearly Gaussian, for which Lloyd-Max levels are
optimal (Lloyd 1957, Max 1960). Only full blocks are rotated; a shorter tail is plain int4.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec.integer_runs import (
    INT4,
    INT4_LARGEST,
    SMALLEST_SCALE,
    int4_codes,
    int4_decode,
    integers_of,
    rounded,
)
from horovod.common.numpy_codec.minifloat import Float32s, Integers, multiplied
from horovod.common.numpy_codec.random_bits import rotation_signs
from horovod.common.numpy_codec.runs import Bytes, check_block_size, packed, split_run, unpacked

__all__ = ["LLOYD_LEVELS", "LLOYD_THRESHOLDS", "hadamard", "rotated_decode", "rotated_encode"]

# Upper half of the 16 levels with the least square error for a unit Gaussian, and their thresholds.
LLOYD_LEVELS = np.array([0.128395036, 0.388048291, 0.656759143, 0.942340434,
                         1.25623119, 1.6180464, 2.06901717, 2.73258948], np.float32)
LLOYD_THRESHOLDS = np.array([0.258221656, 0.522403717, 0.799549758, 1.09928584,
                             1.4371388, 1.84353185, 2.40080333], np.float32)
FLT_MAX = np.finfo(np.float32).max
SIGN_BIT = np.uint32(1 << 31)


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
    check_block_size(block_size)
    full = values.size // block_size * block_size
    numbers = None if random is None else random[:full].reshape(-1, block_size)
    signs = rotation_signs(seed, block_size)
    scales, codes = rotated_codes(values[:full].reshape(-1, block_size), signs, lloyd, numbers)
    tail_scales, tail_codes = int4_codes(values[full:], block_size, None if random is None else random[full:])
    pairs = packed(np.concatenate([codes.ravel(), tail_codes]) & 15, INT4.bits)
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
    """The ``count`` values of a run of rotated blocks."""
    scale_bytes, pairs = split_run(run, INT4, count, block_size)
    full = count // block_size * block_size
    split = full // block_size * 4
    nibbles = unpacked(pairs[: full // 2], INT4.bits, full).reshape(-1, block_size)
    y = hadamard(lloyd_values(nibbles) if lloyd else integers_of(nibbles))
    with np.errstate(over="ignore", invalid="ignore"):
        x = y * scale_bytes[:split].copy().view(np.float32)[:, None]
    x = np.where(np.isnan(x), x, np.clip(x, -FLT_MAX, FLT_MAX))
    values = with_signs(x, rotation_signs(seed, block_size)).ravel()
    tail = np.concatenate([scale_bytes[split:], pairs[full // 2 :]])
    return np.concatenate([values, int4_decode(tail, count - full, block_size)])
