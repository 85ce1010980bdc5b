"""The wire formats ``bit16`` and ``bit8`` in readable NumPy: how a float32 becomes a few bits and comes back.

This module is the teaching twin of the native codecs in ``horovod/native/codec``. It produces the same bytes
and is written to be followed with pencil and paper: every step works on sign, exponent and significand as
integers, and no cast does the work unseen. docs/compression.md explains the formats from the bits up,
docs/wire_format.md gives the grammar of an encoded run.

A *minifloat* with M mantissa bits and exponent bias b is read as (IEEE 754-2019, section 3.4):

    exponent field E = 0 (subnormal):  (-1)^sign * (mantissa / 2^M)     * 2^(1 - b)
    exponent field E > 0 (normal):     (-1)^sign * (1 + mantissa / 2^M) * 2^(E - b)

Both lines are ``integer significand * 2^exponent``: the significand is ``mantissa`` or ``2^M + mantissa``,
the exponent is ``max(E, 1) - b - M``. That one form is what all functions below compute with.

Sources: IEEE 754-2019 (binary16, binary32, roundTiesToEven), OCP 8-bit Floating Point Specification (OFP8)
1.0 (E4M3), OCP Microscaling Formats (MX) Specification 1.0 (E8M0 scales shared by a block). Two deliberate
departures from MX: blocks of 128 by default, and the scale exponent is rounded up where MX takes the floor,
so that the largest element of a block never saturates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "E4M3", "HALF", "MinifloatFormat", "bit8_decode", "bit8_encode", "bit16_decode", "bit16_encode",
    "bit16_saturated", "block_scales", "decode_minifloat", "encode_minifloat", "encoded_bytes", "nmse",
]

Integers = NDArray[np.int64]
Float32s = NDArray[np.float32]

FLOAT32_MANTISSA_BITS = 23
FLOAT32_BIAS = 127
FLOAT32_INFINITY = 0x7F800000
FLOAT32_QUIET_NAN = 0x7FC00000

SCALE_BIAS = 127  # E8M0: a byte s stands for 2^(s - 127), and has neither sign nor zero
SCALE_NAN = 255
SMALLEST_SCALE = 1  # below, 2^(s - 127) is no normal float32; above 254, its inverse is none
LARGEST_SCALE = 254
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class MinifloatFormat:
    """A binary floating-point format narrower than float32: one sign bit, exponent field, mantissa field."""

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    max_code: int  # magnitude bits of the largest finite value
    nan_code: int  # magnitude bits of the NaN that encoding produces
    has_infinity: bool

    @property
    def magnitude_bits(self) -> int:
        """Bits beside the sign, which sits right above them."""
        return self.exponent_bits + self.mantissa_bits

    @property
    def infinity_code(self) -> int:
        """Magnitude bits of infinity where the format has one: exponent field all ones, mantissa zero."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """What holds one code: a byte, or two bytes in little-endian order."""
        return np.dtype("u1" if self.magnitude_bits < 8 else "<u2")

    @property
    def max_value(self) -> float:
        """The largest finite value."""
        return float(decode_minifloat(np.array([self.max_code]), self)[0])

    @property
    def min_normal(self) -> float:
        """The smallest positive value with a full significand; subnormals are 2^mantissa_bits times finer."""
        return 2.0 ** (1 - self.bias)


# IEEE binary16. NaN is encoded as the canonical quiet NaN, whatever its payload was.
HALF = MinifloatFormat("half", exponent_bits=5, mantissa_bits=10, bias=15,
                       max_code=0x7BFF, nan_code=0x7E00, has_infinity=True)
# OCP E4M3 ("fn" elsewhere: finite, with NaN). The exponent field of all ones is used for numbers too, up to
# 1.75 * 2^8 = 448; only the pattern 1111.111 is NaN.
E4M3 = MinifloatFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=7,
                       max_code=0x7E, nan_code=0x7F, has_infinity=False)


class Fields(NamedTuple):
    """float32 values taken apart: finite ones are (-1)^negative * significand * 2^exponent."""

    negative: Integers
    significand: Integers
    exponent: Integers
    is_infinite: NDArray[np.bool_]
    is_nan: NDArray[np.bool_]


def float32_fields(x: Float32s) -> Fields:
    """Takes float32 values apart into sign, integer significand (24 bits at most) and exponent."""
    bits = x.view(np.uint32).astype(np.int64)
    exponent_field = (bits >> FLOAT32_MANTISSA_BITS) & 0xFF
    mantissa = bits & ((1 << FLOAT32_MANTISSA_BITS) - 1)
    leading_one = np.where(exponent_field > 0, 1 << FLOAT32_MANTISSA_BITS, 0)
    return Fields(
        negative=bits >> 31,
        significand=leading_one + mantissa,
        exponent=np.maximum(exponent_field, 1) - FLOAT32_BIAS - FLOAT32_MANTISSA_BITS,
        is_infinite=(exponent_field == 0xFF) & (mantissa == 0),
        is_nan=(exponent_field == 0xFF) & (mantissa != 0),
    )


def divide_rounding_to_even(numerator: Integers, power: Integers) -> Integers:
    """``numerator / 2^power`` as the nearest integer; a tie goes to the even one (roundTiesToEven)."""
    numerator = numerator << np.maximum(-power, 0)  # a negative power multiplies, exactly
    power = np.clip(power, 0, 62)  # 62 suffices for a quotient of zero, and 2^62 still fits an int64
    quotient = numerator >> power
    remainder = numerator - (quotient << power)
    twice, divisor = 2 * remainder, np.int64(1) << power
    is_odd = (quotient & 1) == 1
    round_up = (twice > divisor) | ((twice == divisor) & is_odd)
    return np.asarray(quotient + round_up)


def magnitude_codes(fields: Fields, fmt: MinifloatFormat, scale_exponent: Integers) -> Integers:
    """Magnitude bits of the nearest values, as if the exponent field had no upper end (the caller saturates).

    1. Divide by the scale: subtract its exponent.
    2. Find floor(log2|x|) from the position of the significand's leading one.
    3. The last place of the result weighs 2^(floor(log2|x|) - M), but never less than a subnormal's.
    4. Round the significand to a whole number of last places; 1.11...1 may become 10.00...0.
    5. Put exponent and mantissa into their fields.
    """
    mantissa_bits = fmt.mantissa_bits
    exponent = fields.exponent - scale_exponent
    bit_length = np.frexp(fields.significand.astype(np.float64))[1]
    floor_log2 = exponent + bit_length - 1
    last_place = np.maximum(floor_log2, 1 - fmt.bias) - mantissa_bits
    rounded = divide_rounding_to_even(fields.significand, last_place - exponent)

    leading_one = 1 << mantissa_bits
    carried = rounded == 2 * leading_one  # to the next power of two, whose mantissa bits are zero again
    last_place = last_place + carried

    exponent_field = np.where(rounded >= leading_one, last_place + mantissa_bits + fmt.bias, 0)
    mantissa = rounded & (leading_one - 1)
    return (exponent_field << mantissa_bits) | mantissa


def encode_minifloat(x: ArrayLike, fmt: MinifloatFormat, scale_exponent: ArrayLike = 0) -> NDArray[Any]:
    """Codes of ``x / 2^scale_exponent``: round to nearest even, saturate finite values, keep the sign always.

    NaN becomes the format's NaN; infinity stays infinity where the format has one and becomes NaN elsewhere:
    a finite number in its place would hide an overflow from whoever looks for it (loss scalers do).
    """
    fields = float32_fields(as_float32(x))
    scale = np.asarray(scale_exponent, dtype=np.int64)
    magnitude = np.minimum(magnitude_codes(fields, fmt, scale), fmt.max_code)
    infinity = fmt.infinity_code if fmt.has_infinity else fmt.nan_code
    magnitude = np.where(fields.is_infinite, infinity, magnitude)
    magnitude = np.where(fields.is_nan, fmt.nan_code, magnitude)
    return ((fields.negative << fmt.magnitude_bits) | magnitude).astype(fmt.code_dtype)


def decode_minifloat(codes: NDArray[Any], fmt: MinifloatFormat, scale_exponent: ArrayLike = 0) -> Float32s:
    """``value(code) * 2^scale_exponent`` as float32: exact, but for an overflow to infinity at huge scales.

    NaN is quiet and keeps its sign; where the format is an IEEE one it also keeps its payload.
    """
    codes = codes.astype(np.int64)
    negative = codes >> fmt.magnitude_bits
    magnitude = codes & ((1 << fmt.magnitude_bits) - 1)
    exponent_field = magnitude >> fmt.mantissa_bits
    mantissa = magnitude & ((1 << fmt.mantissa_bits) - 1)
    significand = mantissa + np.where(exponent_field > 0, 1 << fmt.mantissa_bits, 0)
    exponent = np.maximum(exponent_field, 1) - fmt.bias - fmt.mantissa_bits + np.asarray(scale_exponent)
    with np.errstate(over="ignore"):
        value = np.ldexp(significand.astype(np.float32), exponent)

    bits = value.view(np.uint32).astype(np.int64)
    quiet_nan = np.full_like(bits, FLOAT32_QUIET_NAN)
    largest_number = fmt.max_code
    if fmt.has_infinity:
        bits = np.where(magnitude == fmt.infinity_code, FLOAT32_INFINITY, bits)
        quiet_nan |= mantissa << (FLOAT32_MANTISSA_BITS - fmt.mantissa_bits)
        largest_number = fmt.infinity_code
    bits = np.where(magnitude > largest_number, quiet_nan, bits)
    return np.asarray((bits | (negative << 31)).astype(np.uint32).view(np.float32))


def block_scales(x: Float32s, block_size: int) -> NDArray[np.uint8]:
    """One E8M0 byte per block: s = 127 + ceil(log2(amax / 448)), clamped to 1..254.

    amax is the block's largest finite magnitude (0 if none). 448 = 1.75 * 2^8, so with amax = 1.f * 2^e the
    ceiling is e - 8 while 1.f <= 1.75 and e - 7 above: no logarithm. Positive floats order like their bits.
    """
    blocks = -(-x.size // block_size)
    bits = np.zeros(blocks * block_size, dtype=np.int64)
    bits[: x.size] = x.view(np.uint32) & 0x7FFFFFFF
    bits[bits >= FLOAT32_INFINITY] = 0
    amax = bits.reshape(blocks, block_size).max(axis=1)
    mantissa = amax & ((1 << FLOAT32_MANTISSA_BITS) - 1)
    above_one_and_three_quarters = mantissa > 0x600000
    scale = (amax >> FLOAT32_MANTISSA_BITS) - 8 + above_one_and_three_quarters
    return np.asarray(np.clip(scale, SMALLEST_SCALE, LARGEST_SCALE), dtype=np.uint8)


def bit8_encode(x: ArrayLike, block_size: int = 128, prescale: float = 1.0) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: one scale byte per block, then one E4M3 code per element."""
    values = multiplied(as_float32(x).ravel(), prescale)
    check_block_size(block_size)
    scales = block_scales(values, block_size)
    scale_exponent = np.repeat(scales.astype(np.int64) - SCALE_BIAS, block_size)[: values.size]
    return np.concatenate([scales, encode_minifloat(values, E4M3, scale_exponent)])


def bit8_decode(run: NDArray[np.uint8], count: int, block_size: int = 128) -> Float32s:
    """The ``count`` values of a bit8 run. A scale byte of 255 makes its whole block NaN, as OCP MX says."""
    check_run(run, encoded_bytes("bit8", count, block_size))
    scales, codes = run[: run.size - count], run[run.size - count :]
    scale = np.repeat(scales, block_size)[:count].astype(np.int64)
    values = decode_minifloat(codes, E4M3, scale - SCALE_BIAS)
    values[scale == SCALE_NAN] = np.nan
    return values


def bit16_encode(x: ArrayLike, prescale: float = 1.0) -> NDArray[np.uint8]:
    """The run of ``x * prescale``: one IEEE half per element, little-endian, saturating at +-65504."""
    return encode_minifloat(multiplied(as_float32(x).ravel(), prescale), HALF).view(np.uint8)


def bit16_decode(run: NDArray[np.uint8], count: int) -> Float32s:
    """The ``count`` values of a bit16 run."""
    check_run(run, encoded_bytes("bit16", count))
    return decode_minifloat(np.ascontiguousarray(run).view("<u2"), HALF)


def bit16_saturated(x: ArrayLike, prescale: float = 1.0) -> int:
    """How many finite elements of ``x * prescale`` bit16 clamps: those that round to more than 65504."""
    fields = float32_fields(multiplied(as_float32(x).ravel(), prescale))
    is_finite = ~(fields.is_infinite | fields.is_nan)
    beyond = magnitude_codes(fields, HALF, np.asarray(0)) > HALF.max_code
    return int(np.count_nonzero(is_finite & beyond))


def encoded_bytes(name: str, count: int, block_size: int = 128) -> int:
    """Length of a run of ``count`` elements: bit16 2 * count, bit8 ceil(count / block_size) + count."""
    if count < 0:
        raise ValueError(f"a run cannot hold {count} elements; give a count of 0 or more")
    if name == "bit16":
        return 2 * count
    if name == "bit8":
        check_block_size(block_size)
        return -(-count // block_size) + count
    raise ValueError(f"no codec is called {name!r}; there are 'bit8' and 'bit16'")


def nmse(decoded: ArrayLike, original: ArrayLike) -> float:
    """Normalised mean square error |decoded - original|^2 / |original|^2 in float64; 0 if nothing differs."""
    reference = np.asarray(original, dtype=np.float64)
    error = float(np.sum((np.asarray(decoded, dtype=np.float64) - reference) ** 2))
    return error / float(np.sum(reference**2)) if error != 0 else 0.0


def as_float32(x: ArrayLike) -> Float32s:
    """``x`` as a float32 array (float64 rounds to nearest even); ValueError for anything but floats."""
    array = np.asarray(x)
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise ValueError(f"the codecs take float16, float32 or float64 arrays, not {array.dtype}")
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float32)


def multiplied(x: Float32s, prescale: float) -> Float32s:
    """``x * prescale`` with the factor and the product rounded to float32, as the native codecs do."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x * np.float32(prescale))


def check_block_size(block_size: int) -> None:
    """ValueError unless a bit8 block may have this many elements."""
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"a bit8 block has {', '.join(map(str, BLOCK_SIZES))} elements, not {block_size}")


def check_run(run: NDArray[np.uint8], expected: int) -> None:
    """ValueError unless the run is bytes and has the length its count asks for."""
    if run.dtype != np.uint8 or run.ndim != 1 or run.size != expected:
        raise ValueError(f"expected a run of {expected} bytes (uint8), got {run.dtype} of shape {run.shape}")
