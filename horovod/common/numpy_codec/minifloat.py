"""Minifloats: how a float32 becomes 8 or 16 bits and comes back, with integer arithmetic.

A *minifloat* with M mantissa bits and exponent bias b is read as (IEEE 754-2019, section 3.4):

    exponent field E = 0 (subnormal):  (-1)^sign * (mantissa / 2^M)     * 2^(1 - b)
    exponent field E > 0 (normal):     (-1)^sign * (1 + mantissa / 2^M) * 2^(E - b)

Both lines are ``integer significand * 2^exponent``: the significand is ``mantissa`` or ``2^M + mantissa``,
the exponent is ``max(E, 1) - b - M``. All functions below compute with that form.

Sources: IEEE 754-2019 (binary16, binary32, roundTiesToEven), OCP 8-bit Floating Point Specification (OFP8)
1.0 (E4M3, E5M2). E3M4 has no standard: it follows E4M3's rules with one bit moved from the exponent to the
mantissa.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common import errors

Integers = NDArray[np.int64]
Float32s = NDArray[np.float32]

FLOAT32_MANTISSA_BITS = 23
FLOAT32_BIAS = 127
FLOAT32_INFINITY = 0x7F800000
FLOAT32_QUIET_NAN = 0x7FC00000


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
        """Number of bits below the sign bit."""
        return self.exponent_bits + self.mantissa_bits

    @property
    def infinity_code(self) -> int:
        """Magnitude bits of infinity, if the format has one: exponent field all ones, mantissa zero."""
        return ((1 << self.exponent_bits) - 1) << self.mantissa_bits

    @property
    def code_dtype(self) -> np.dtype[Any]:
        """The dtype of one code: a byte, or two bytes in little-endian order."""
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
# OCP E4M3 ("fn" elsewhere: finite, with NaN). The exponent field of all ones also encodes numbers, up to 1.75
# * 2^8 = 448; only the pattern 1111.111 is NaN.
E4M3 = MinifloatFormat("e4m3", exponent_bits=4, mantissa_bits=3, bias=7,
                       max_code=0x7E, nan_code=0x7F, has_infinity=False)
# OCP E5M2: IEEE's rules, a half without its last eight bits.
E5M2 = MinifloatFormat("e5m2", exponent_bits=5, mantissa_bits=2, bias=15,
                       max_code=0x7B, nan_code=0x7E, has_infinity=True)
# E4M3's rules: up to 1.875 * 2^4 = 30, and only the pattern 111.1111 is NaN.
E3M4 = MinifloatFormat("e3m4", exponent_bits=3, mantissa_bits=4, bias=3,
                       max_code=0x7E, nan_code=0x7F, has_infinity=False)
# E3M2 of OCP Microscaling Formats (MX) 1.0: up to 1.75 * 2^4 = 28. Every pattern is a number, none NaN.
E3M2 = MinifloatFormat("e3m2", exponent_bits=3, mantissa_bits=2, bias=3,
                       max_code=0x1F, nan_code=0x1F, has_infinity=False)


class Fields(NamedTuple):
    """The parts of float32 values: finite ones are (-1)^negative * significand * 2^exponent."""

    negative: Integers
    significand: Integers
    exponent: Integers
    is_infinite: NDArray[np.bool_]
    is_nan: NDArray[np.bool_]


def float32_fields(x: Float32s) -> Fields:
    """Split float32 values into sign, integer significand (24 bits at most) and exponent."""
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


def divide_rounding_stochastically(
    numerator: Integers, power: Integers, random: NDArray[np.uint32], random_bits: int
) -> Integers:
    """``numerator / 2^power`` rounded up with the probability of its fraction, cut to `random_bits` bits.

    Adds the random number's upper bits, as a fraction below one, to the quotient, and truncates the sum.
    """
    shift = power - random_bits
    fixed_point = (numerator << np.maximum(-shift, 0)) >> np.clip(shift, 0, 62)
    return np.asarray((fixed_point + (random.astype(np.int64) >> (32 - random_bits))) >> random_bits)


def magnitude_codes(
    fields: Fields, fmt: MinifloatFormat, scale_exponent: Integers, random: NDArray[np.uint32] | None = None
) -> Integers:
    """Magnitude bits of the nearest values, as if the exponent field had no upper end (the caller saturates).

    1. Divide by the scale: subtract its exponent.
    2. Find floor(log2|x|) from the position of the significand's leading one.
    3. The last place of the result weighs 2^(floor(log2|x|) - M), but never less than a subnormal's.
    4. Round the significand to a whole number of last places; 1.11...1 may become 10.00...0. Rounding is to
       nearest, or, given random numbers, stochastic with as many random bits as a normal result drops.
    5. Put exponent and mantissa into their fields.
    """
    mantissa_bits = fmt.mantissa_bits
    exponent = fields.exponent - scale_exponent
    bit_length = np.frexp(fields.significand.astype(np.float64))[1]
    floor_log2 = exponent + bit_length - 1
    last_place = np.maximum(floor_log2, 1 - fmt.bias) - mantissa_bits
    power = last_place - exponent
    if random is None:
        rounded = divide_rounding_to_even(fields.significand, power)
    else:
        dropped = FLOAT32_MANTISSA_BITS - mantissa_bits
        rounded = divide_rounding_stochastically(fields.significand, power, random, dropped)

    leading_one = 1 << mantissa_bits
    carried = rounded == 2 * leading_one  # to the next power of two, whose mantissa bits are zero again
    last_place = last_place + carried

    exponent_field = np.where(rounded >= leading_one, last_place + mantissa_bits + fmt.bias, 0)
    mantissa = rounded & (leading_one - 1)
    return (exponent_field << mantissa_bits) | mantissa


def encode_minifloat(
    x: ArrayLike,
    fmt: MinifloatFormat,
    scale_exponent: ArrayLike = 0,
    random: NDArray[np.uint32] | None = None,
    *,
    saturates: bool = True,
) -> NDArray[Any]:
    """Codes of ``x / 2^scale_exponent``: round to nearest even, saturate finite values, always keep the sign.

    With `random`, one 32-bit number per element, rounding is stochastic. Without `saturates` (in formats with
    infinities), finite values that round beyond the largest become infinite.

    NaN becomes the format's NaN. Infinity stays infinity if the format has one, and becomes NaN otherwise: a
    finite number would hide an overflow from loss scalers.
    """
    fields = float32_fields(as_float32(x))
    scale = np.asarray(scale_exponent, dtype=np.int64)
    most = fmt.max_code if saturates else fmt.infinity_code
    magnitude = np.minimum(magnitude_codes(fields, fmt, scale, random), most)
    infinity = fmt.infinity_code if fmt.has_infinity else fmt.nan_code
    magnitude = np.where(fields.is_infinite, infinity, magnitude)
    magnitude = np.where(fields.is_nan, fmt.nan_code, magnitude)
    return ((fields.negative << fmt.magnitude_bits) | magnitude).astype(fmt.code_dtype)


def decode_minifloat(codes: NDArray[Any], fmt: MinifloatFormat, scale_exponent: ArrayLike = 0) -> Float32s:
    """``value(code) * 2^scale_exponent`` as float32: exact, except for overflow to infinity at huge scales.

    NaN is quiet and keeps its sign; in an IEEE format it also keeps its payload.
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


def as_float32(x: ArrayLike) -> Float32s:
    """``x`` as a float32 array (float64 rounds to nearest even). ValueError for anything but floats."""
    array = np.asarray(x)
    if array.dtype not in (np.float16, np.float32, np.float64):
        raise errors.no_floats(dtype=str(array.dtype))
    with np.errstate(over="ignore"):
        return np.asarray(array, dtype=np.float32)


def multiplied(x: ArrayLike, prescale: float) -> Float32s:
    """``x * prescale`` as a flat array, factor and product rounded to float32, as the native codecs do."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(as_float32(x).ravel() * np.float32(prescale))
