"""Whole runs of 16-bit floats, and of ``bit8`` and ``float6``.

The latter are minifloats of 8 and 6 bits with one power-of-two scale per block. Source: OCP Microscaling
Formats (MX) Specification 1.0 (E8M0 scales shared by a block), with two differences. Blocks have 128 elements
by default. The scale exponent is rounded up instead of down, so that the largest element of a block never
saturates. Elements of ``float6`` have neither infinity nor NaN: a scale byte of 255 marks a block that
contained one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec import runs
from horovod.common.numpy_codec.minifloat import (
    E3M2,
    E3M4,
    E4M3,
    E5M2,
    FLOAT32_INFINITY,
    FLOAT32_MANTISSA_BITS,
    HALF,
    Float32s,
    MinifloatFormat,
    decode_minifloat,
    encode_minifloat,
    float32_fields,
    magnitude_codes,
    multiplied,
)

SCALE_BIAS = 127  # E8M0: a byte s means 2^(s - 127), without sign or zero
SCALE_NAN = 255
SMALLEST_SCALE = 1  # below, 2^(s - 127) is not a normal float32; above 254, its inverse is not
LARGEST_SCALE = 254
VARIANTS = {fmt.name: fmt for fmt in (E4M3, E5M2, E3M4)}
BIT8 = runs.Layout(scale_bytes=1, bits=8)
FLOAT6 = runs.Layout(scale_bytes=1, bits=6)
SIXTEEN_BITS = runs.Layout(scale_bytes=0, bits=16)


def block_scales(x: Float32s, block_size: int, fmt: MinifloatFormat = E4M3) -> NDArray[np.uint8]:
    """One E8M0 byte per block: s = 127 + ceil(log2(amax / fmt.max_value)), clamped to 1..254.

    amax is the block's largest finite magnitude (0 if none). E4M3's 448 is 1.75 * 2^8, so with amax = 1.f *
    2^e the ceiling is e - 8 if 1.f <= 1.75, else e - 7: no logarithm is needed. E5M2 ends at 1.75 * 2^15,
    E3M4 at 1.875 * 2^4.
    """
    amax = runs.largest_magnitudes(x, block_size, finite_only=True).astype(np.int64)
    largest = int(np.float32(fmt.max_value).view(np.uint32))
    mantissa_mask = (1 << FLOAT32_MANTISSA_BITS) - 1
    above = (amax & mantissa_mask) > (largest & mantissa_mask)
    exponent_field = amax >> FLOAT32_MANTISSA_BITS
    scale = exponent_field - ((largest >> FLOAT32_MANTISSA_BITS) - SCALE_BIAS) + above
    return np.asarray(np.clip(scale, SMALLEST_SCALE, LARGEST_SCALE), dtype=np.uint8)


def bit8_encode(
    x: ArrayLike,
    block_size: int = 128,
    prescale: float = 1.0,
    fmt: MinifloatFormat = E4M3,
    random: NDArray[np.uint32] | None = None,
) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: one scale byte per block, then one code per element.

    `random`, one number per element, makes the rounding stochastic (see ``random_numbers``).
    """
    values = multiplied(x, prescale)
    runs.check_block_size(block_size)
    scales = block_scales(values, block_size, fmt)
    scale_exponent = runs.per_element(scales, block_size, values.size).astype(np.int64) - SCALE_BIAS
    return np.concatenate([scales, encode_minifloat(values, fmt, scale_exponent, random)])


def bit8_decode(
    run: NDArray[np.uint8], count: int, block_size: int = 128, fmt: MinifloatFormat = E4M3
) -> Float32s:
    """The ``count`` values of a bit8 run. A scale byte of 255 makes its whole block NaN, as in OCP MX."""
    scales, codes = runs.split_run(run, BIT8, count, block_size)
    return scaled_values(codes, scales, block_size, fmt)


def scaled_values(
    codes: NDArray[np.uint8], scales: NDArray[np.uint8], block_size: int, fmt: MinifloatFormat
) -> Float32s:
    """The value of each code, times the scale of its block."""
    scale = runs.per_element(scales, block_size, codes.size).astype(np.int64)
    values = decode_minifloat(codes, fmt, scale - SCALE_BIAS)
    values[scale == SCALE_NAN] = np.nan
    return values


def float6_encode(
    x: ArrayLike, block_size: int = 128, prescale: float = 1.0, random: NDArray[np.uint32] | None = None
) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: a scale byte per block, then four codes in three bytes."""
    values = multiplied(x, prescale)
    runs.check_block_size(block_size)
    is_spoilt = runs.largest_magnitudes(values, block_size, finite_only=False) >= FLOAT32_INFINITY
    scales = np.where(is_spoilt, SCALE_NAN, block_scales(values, block_size, E3M2)).astype(np.uint8)
    of_element = runs.per_element(scales, block_size, values.size).astype(np.int64)
    finite = np.where(of_element == SCALE_NAN, np.float32(0), values)
    codes = encode_minifloat(finite, E3M2, of_element - SCALE_BIAS, random)
    return np.concatenate([scales, runs.packed(np.where(of_element == SCALE_NAN, 0, codes), FLOAT6.bits)])


def float6_decode(run: NDArray[np.uint8], count: int, block_size: int = 128) -> Float32s:
    """The ``count`` values of a float6 run; all of a block with the scale byte 255 are NaN."""
    scales, stream = runs.split_run(run, FLOAT6, count, block_size)
    return scaled_values(runs.unpacked(stream, FLOAT6.bits, count), scales, block_size, E3M2)


def bit16_encode(x: ArrayLike, prescale: float = 1.0) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: one IEEE half per element, little-endian, saturating at +-65504."""
    return encode_minifloat(multiplied(x, prescale), HALF).view(np.uint8)


def bit16_decode(run: NDArray[np.uint8], count: int) -> Float32s:
    return decode_minifloat(sixteen_bit_codes(run, count), HALF)


def fp16_encode(x: ArrayLike, prescale: float = 1.0) -> NDArray[np.uint8]:
    """Like bit16_encode, but with the overflow of a cast: values that round beyond 65504 become infinite."""
    values = multiplied(x, prescale)
    return encode_minifloat(values, HALF, saturates=False).view(np.uint8)


def bf16_encode(x: ArrayLike, prescale: float = 1.0) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: the upper half of each float32, rounded to nearest even."""
    bits = multiplied(x, prescale).view(np.uint32)
    last = bits >> 16 & np.uint32(1)
    rounded = (bits + np.uint32(0x7FFF) + last) >> 16
    is_nan = (bits & np.uint32(0x7FFFFFFF)) > FLOAT32_INFINITY
    quiet = bits >> 16 | np.uint32(0x40)
    return np.asarray(np.where(is_nan, quiet, rounded).astype("<u2").view(np.uint8))


def bf16_decode(run: NDArray[np.uint8], count: int) -> Float32s:
    return np.asarray((sixteen_bit_codes(run, count).astype(np.uint32) << 16).view(np.float32))


def sixteen_bit_codes(run: NDArray[np.uint8], count: int) -> NDArray[np.uint16]:
    """The codes of a run of 16 bits per element."""
    runs.check_count(count)
    runs.check_run(run, SIXTEEN_BITS.run_bytes(count, 1))
    return np.ascontiguousarray(run).view("<u2")


def bit16_saturated(x: ArrayLike, prescale: float = 1.0) -> int:
    """The number of finite elements of ``x * prescale`` that bit16 clamps: they round to more than 65504."""
    fields = float32_fields(multiplied(x, prescale))
    is_finite = ~(fields.is_infinite | fields.is_nan)
    beyond = magnitude_codes(fields, HALF, np.asarray(0)) > HALF.max_code
    return int(np.count_nonzero(is_finite & beyond))
