"""Compares elements of the NumPy codec's formats with independent code (ml_dtypes, NumPy's float16)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codec_cases import (
    all_16_bit_values,
    assert_same_bits,
    bits,
    float32_sweep,
    half_boundaries,
    minifloat_boundaries,
    random_patterns,
)
from numpy.typing import NDArray

from horovod.common.numpy_codec import (
    E3M4,
    E4M3,
    E5M2,
    HALF,
    MinifloatFormat,
    bit16_saturated,
    decode_minifloat,
    divide_rounding_to_even,
    encode_minifloat,
)

BFLOAT16 = MinifloatFormat("bfloat16", 8, 7, 127, max_code=0x7F7F, nan_code=0x7FC0, has_infinity=True)

FLOAT32_INPUTS = {
    "sweep": float32_sweep(),
    "random patterns": random_patterns(100_000),
    "half boundaries": half_boundaries(),
    "e4m3 boundaries": minifloat_boundaries(E4M3),
    "e5m2 boundaries": minifloat_boundaries(E5M2),
    "e3m4 boundaries": minifloat_boundaries(E3M4),
    "all halves": all_16_bit_values(np.float16),
    "all bfloat16": all_16_bit_values(ml_dtypes.bfloat16),
}
inputs = pytest.mark.parametrize("x", FLOAT32_INPUTS.values(), ids=FLOAT32_INPUTS.keys())


def judged(x: NDArray[np.float32], dtype: Any) -> NDArray[Any]:
    """The reference's conversion, which overflows to infinity or NaN; ours saturates."""
    with np.errstate(over="ignore", invalid="ignore"):
        return x.astype(dtype)


@inputs
def test_e4m3_agrees_with_ml_dtypes(x: NDArray[np.float32]) -> None:
    # 464 is halfway between 448 and the next step; values up to there do not overflow.
    in_range = x[np.abs(x) <= 464]
    assert_same_bits(encode_minifloat(in_range, E4M3), bits(judged(in_range, ml_dtypes.float8_e4m3fn)))


@inputs
def test_e3m4_agrees_with_ml_dtypes_where_that_has_numbers(x: NDArray[np.float32]) -> None:
    # Its float8_e3m4 follows IEEE: the exponent field of all ones, our 16 to 30, is infinity and NaN there.
    in_range = x[np.abs(x) < 15.75]
    assert_same_bits(encode_minifloat(in_range, E3M4), bits(judged(in_range, ml_dtypes.float8_e3m4)))
    # That binade has the mantissas of the binade below.
    above = x[(np.abs(x) > 15.75) & (np.abs(x) < 30.5)]
    halved = bits(judged(above / 2, ml_dtypes.float8_e3m4))
    assert_same_bits(encode_minifloat(above, E3M4), halved + np.uint8(0x10))


@inputs
@pytest.mark.parametrize("fmt", [E4M3, E3M4], ids=lambda fmt: fmt.name)
def test_finite_values_saturate_and_others_are_marked(x: NDArray[np.float32], fmt: MinifloatFormat) -> None:
    beyond = x[np.isfinite(x) & (np.abs(x) > fmt.max_value)]
    sign = np.signbit(beyond).astype(np.uint8) << 7
    assert_same_bits(encode_minifloat(beyond, fmt), sign | np.uint8(0x7E))
    others = x[~np.isfinite(x)]
    sign = np.signbit(others).astype(np.uint8) << 7
    assert_same_bits(encode_minifloat(others, fmt), sign | np.uint8(0x7F))


@inputs
def test_e5m2_keeps_infinity_and_saturates_finite_values(x: NDArray[np.float32]) -> None:
    codes = encode_minifloat(x, E5M2)
    sign = np.signbit(x).astype(np.uint8) << 7
    magnitude = np.where(np.isnan(x), 0x7E, np.where(np.isinf(x), 0x7C, 0x7B)).astype(np.uint8)
    beyond = ~(np.abs(x) < 57344)
    assert_same_bits(codes[beyond], (sign | magnitude)[beyond])


@inputs
def test_half_agrees_with_numpy(x: NDArray[np.float32]) -> None:
    codes, judge = encode_minifloat(x, HALF), judged(x, np.float16)
    overflows = np.isfinite(x) & np.isinf(judge)
    expected = np.where(overflows, np.copysign(np.float16(65504), judge), judge)
    expected = np.where(np.isnan(judge), np.copysign(np.uint16(0x7E00).view(np.float16), judge), expected)
    assert_same_bits(codes, bits(expected))
    assert bit16_saturated(x) == np.count_nonzero(overflows)


@inputs
@pytest.mark.parametrize(("fmt", "dtype"), [(E5M2, ml_dtypes.float8_e5m2), (BFLOAT16, ml_dtypes.bfloat16)])
def test_other_formats_can_be_described(x: NDArray[np.float32], fmt: MinifloatFormat, dtype: Any) -> None:
    judge = judged(x, dtype)
    comparable = ~np.isnan(x) & ~(np.isfinite(x) & np.isinf(judge.astype(np.float32)))
    assert_same_bits(encode_minifloat(x[comparable], fmt), bits(judge[comparable]))


def test_all_256_codes_of_e3m4_decode() -> None:
    codes = np.arange(256, dtype=np.uint8)
    values, judge = decode_minifloat(codes, E3M4), codes.view(ml_dtypes.float8_e3m4).astype(np.float32)
    shared = (codes & 0x7F) < 0x70
    assert_same_bits(values[shared], judge[shared])
    top = np.copysign(16.0 + np.arange(15), 1.0).astype(np.float32)
    assert_same_bits(values[0x70:0x7F], top)
    assert_same_bits(values[0xF0:0xFF], -top)
    assert np.isnan(values[[0x7F, 0xFF]]).all()
    assert np.signbit(values[0xFF])
    assert_same_bits(encode_minifloat(values, E3M4), codes)


@pytest.mark.parametrize(("fmt", "dtype"), [(E4M3, ml_dtypes.float8_e4m3fn), (E5M2, ml_dtypes.float8_e5m2)])
def test_all_256_codes_decode(fmt: MinifloatFormat, dtype: Any) -> None:
    codes = np.arange(256, dtype=np.uint8)
    values, judge = decode_minifloat(codes, fmt), codes.view(dtype).astype(np.float32)
    assert_same_bits(np.isnan(values), np.isnan(judge))
    number = ~np.isnan(judge)
    assert_same_bits(values[number], judge[number])
    assert_same_bits(np.signbit(values), codes >= 128)  # NaN keeps its sign too
    assert_same_bits(encode_minifloat(values, fmt)[number], codes[number])


def test_all_65536_halves_decode_and_encode_back() -> None:
    codes = np.arange(65536, dtype=np.uint16)
    values = decode_minifloat(codes, HALF)
    nan = (codes & 0x7FFF) > 0x7C00
    assert_same_bits(values[~nan], codes.view(np.float16).astype(np.float32)[~nan])
    sign, payload = codes.astype(np.uint32) >> 15 << 31, (codes & 0x3FF).astype(np.uint32) << 13
    assert_same_bits(bits(values)[nan], (sign | 0x7FC00000 | payload)[nan])
    canonical = np.where(nan, (codes & 0x8000) | 0x7E00, codes).astype(np.uint16)
    assert_same_bits(encode_minifloat(values, HALF), canonical)


@pytest.mark.parametrize("fmt", [E4M3, HALF, E5M2, E3M4], ids=lambda fmt: fmt.name)
def test_the_nearest_value_is_chosen_and_ties_go_to_the_even_code(fmt: MinifloatFormat) -> None:
    values = decode_minifloat(np.arange(fmt.max_code + 1), fmt).astype(np.float64)
    x = np.concatenate([values[:-1] + (values[1:] - values[:-1]) * part for part in (0.25, 0.5, 0.75)])
    below = np.tile(np.arange(fmt.max_code), 3)
    part = np.repeat([0.25, 0.5, 0.75], fmt.max_code)
    expected = np.where((part == 0.75) | ((part == 0.5) & (below % 2 == 1)), below + 1, below)
    assert np.array_equal(encode_minifloat(x.astype(np.float32), fmt), expected)
    negative = encode_minifloat(-x.astype(np.float32), fmt)
    assert np.array_equal(negative, expected | (1 << fmt.magnitude_bits))


def test_named_values_of_the_formats() -> None:
    assert (E4M3.max_value, E4M3.min_normal) == (448.0, 2.0**-6)
    assert (E5M2.max_value, E5M2.min_normal) == (57344.0, 2.0**-14)
    assert (E3M4.max_value, E3M4.min_normal) == (30.0, 2.0**-2)
    assert (HALF.max_value, HALF.min_normal) == (65504.0, 2.0**-14)
    assert decode_minifloat(np.array([1]), E4M3)[0] == 2.0**-9
    assert decode_minifloat(np.array([1]), HALF)[0] == 2.0**-24
    assert (E4M3.code_dtype.itemsize, HALF.code_dtype.itemsize) == (1, 2)


@pytest.mark.parametrize(("x", "code"), [
    (0.0, 0x00), (-0.0, 0x80), (1.0, 0x38), (-1.0, 0xB8), (448.0, 0x7E), (2.0**-9, 0x01), (2.0**-10, 0x00),
    (3 * 2.0**-10, 0x02), (1.0625, 0x38), (1.1875, 0x3A), (1.96875, 0x40), (0.3, 0x2A), (np.inf, 0x7F),
    (-np.inf, 0xFF), (1e-45, 0x00), (-1e-45, 0x80), (3.4e38, 0x7E), (2.0**-6 - 2.0**-11, 0x08),
])
def test_e4m3_codes_worked_by_hand(x: float, code: int) -> None:
    assert encode_minifloat(x, E4M3) == code


@pytest.mark.parametrize("exponent", [-126, -9, -1, 1, 9, 100])
def test_a_power_of_two_scale_shifts_the_exponent_and_nothing_else(exponent: int) -> None:
    x = np.float32([1.0, -1.3, 0.07, 300.0, 0.0])
    scaled = np.ldexp(x, exponent)
    assert_same_bits(encode_minifloat(scaled, E4M3, exponent), encode_minifloat(x, E4M3))
    codes = encode_minifloat(x, E4M3)
    unscaled = decode_minifloat(codes, E4M3)
    assert_same_bits(decode_minifloat(codes, E4M3, exponent), np.ldexp(unscaled, exponent))


def test_division_by_a_power_of_two_rounds_to_even() -> None:
    numerators = np.array([0, 1, 2, 3, 4, 5, 6, 7, 10, 14])
    assert divide_rounding_to_even(numerators, np.array(2)).tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 4]
    assert divide_rounding_to_even(numerators, np.array(0)).tolist() == numerators.tolist()
    assert divide_rounding_to_even(numerators, np.array(-1)).tolist() == (2 * numerators).tolist()
    assert divide_rounding_to_even(np.array([(1 << 24) - 1]), np.array(1000)).tolist() == [0]
