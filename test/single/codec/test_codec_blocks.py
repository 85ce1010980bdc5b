"""Blocks, scales and whole arrays of the NumPy codecs: edges, special values, error bounds, sizes, errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from codec_cases import (
    BLOCK_SIZES,
    COUNTS,
    PRESCALES,
    assert_same_bits,
    bits,
    float32_sweep,
    gradient_like,
    in_blocks_of_scale_one,
    minifloat_boundaries,
    random_patterns,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from refusals import refused

from horovod.common import errors
from horovod.common.numpy_codec import (
    E4M3,
    bit8_decode,
    bit8_encode,
    bit16_decode,
    bit16_encode,
    bit16_saturated,
    block_scales,
    encode_minifloat,
    encoded_bytes,
    nmse,
)

FLT_MAX = np.finfo(np.float32).max
blocks = pytest.mark.parametrize("block_size", BLOCK_SIZES)


def bit8_round_trip(x: NDArray[np.float32], block_size: int = 128) -> NDArray[np.float32]:
    return bit8_decode(bit8_encode(x, block_size), x.size, block_size)


def bit16_round_trip(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return bit16_decode(bit16_encode(x), x.size)


def scales_per_element(run: NDArray[np.uint8], count: int, block_size: int) -> NDArray[np.float64]:
    return np.ldexp(1.0, run[: run.size - count].astype(np.int64) - 127).repeat(block_size)[:count]


# ---- scales ------------------------------------------------------------------------------------------


def test_scale_is_the_smallest_power_of_two_that_does_not_saturate() -> None:
    amax = np.abs(float32_sweep())
    amax = amax[np.isfinite(amax)]
    scale = block_scales(amax, 1).astype(np.int64)
    fits = np.ldexp(448.0, scale - 127) >= amax
    next_lower_fits = np.ldexp(448.0, scale - 128) >= amax
    assert fits.all()
    assert (~next_lower_fits | (scale == 1)).all()
    assert scale.min() == 1
    assert scale.max() == 247
    # The definition of the wire contract, in integer arithmetic on the bits.
    formula = ((bits(amax).astype(np.int64) + 0x1FFFFF) >> 23) - 8
    assert np.array_equal(scale, np.clip(formula, 1, 254))


@pytest.mark.parametrize(("amax", "scale"), [
    (0.0, 1), (448.0, 127), (np.nextafter(np.float32(448), np.float32(449)), 128), (224.0, 126), (225.0, 127),
    (1.0, 119), (FLT_MAX, 247), (1e-45, 1), (1.75 * 2.0**-118, 1), (1.76 * 2.0**-118, 2),
])
def test_scale_bytes_worked_by_hand(amax: float, scale: int) -> None:
    assert bit8_encode(np.float32([0.0, -amax]))[0] == scale


@given(st.lists(st.floats(width=32, allow_nan=True), max_size=70))
def test_no_finite_element_saturates_and_the_largest_keeps_four_bits(values: list[float]) -> None:
    x = np.array(values, dtype=np.float32)
    x = x[~(np.isfinite(x) & (np.abs(x) >= 1.9375 * 2.0**127))]  # these round up to infinity
    finite = np.isfinite(x)
    decoded = bit8_round_trip(x, 32)
    assert np.array_equal(np.isfinite(decoded), finite)
    for start in range(0, x.size, 32):
        block = x[start : start + 32][finite[start : start + 32]]
        if block.size and np.abs(block).max() > 2.0**-119:
            largest = np.argmax(np.abs(block))
            restored = decoded[start : start + 32][finite[start : start + 32]][largest]
            assert abs(float(restored) - float(block[largest])) <= abs(float(block[largest])) / 16


@blocks
def test_blocks_of_scale_one_hold_the_plain_element_codes(block_size: int) -> None:
    x = in_blocks_of_scale_one(np.concatenate([float32_sweep(), minifloat_boundaries(E4M3)]), block_size)
    run = bit8_encode(x, block_size)
    scales, codes = run[: x.size // block_size], run[x.size // block_size :]
    assert (scales == 127).all()
    assert_same_bits(codes, encode_minifloat(x, E4M3))


# ---- shapes, sizes, layout ---------------------------------------------------------------------------


@blocks
@pytest.mark.parametrize("count", COUNTS)
def test_runs_of_any_length(block_size: int, count: int) -> None:
    x = gradient_like(count)
    run = bit8_encode(x, block_size)
    assert run.size == encoded_bytes("bit8", count, block_size) == -(-count // block_size) + count
    decoded = bit8_decode(run, count, block_size)
    assert (decoded.dtype, decoded.shape) == (np.float32, (count,))
    for start in range(0, count, block_size):  # each block is encoded independently
        alone = x[start : start + block_size]
        assert_same_bits(decoded[start : start + block_size], bit8_round_trip(alone, block_size))
    assert bit16_encode(x).size == encoded_bytes("bit16", count) == 2 * count
    assert bit16_round_trip(x).shape == (count,)


def test_layout_is_scales_then_codes_and_little_endian_halves() -> None:
    x = np.zeros(40, dtype=np.float32)
    x[0], x[39] = 448.0, -1.0
    assert bit8_encode(x, 32).tolist() == [127, 119, 0x7E] + [0] * 38 + [0xF8]  # -1 / 2^-8 = -256
    assert bit16_encode(np.float32([1.0, -2.0])).tolist() == [0x00, 0x3C, 0x00, 0xC0]


def test_other_shapes_are_taken_in_row_major_order() -> None:
    x = gradient_like(6 * 50).reshape(6, 50)
    assert_same_bits(bit8_encode(x.T), bit8_encode(x.T.copy().ravel()))
    assert_same_bits(bit8_encode(x[::2, 1::3], 32), bit8_encode(x[::2, 1::3].copy().ravel(), 32))
    assert bit8_encode(np.float32(1.0)).tolist() == [119, 0x78]
    assert bit16_encode(np.float32(1.0)).tolist() == [0x00, 0x3C]


def test_float16_and_float64_inputs_are_taken_as_float32() -> None:
    x = random_patterns(5000)
    with np.errstate(over="ignore", invalid="ignore"):
        double = x.astype(np.float64) * (1 + 2.0**-30)
        for other in (x.astype(np.float16), double):
            assert_same_bits(bit8_encode(other), bit8_encode(other.astype(np.float32)))
            assert_same_bits(bit16_encode(other), bit16_encode(other.astype(np.float32)))


def test_wire_size_per_element() -> None:
    count = 1_000_000
    assert 8 * encoded_bytes("bit8", count) / count <= 8.1
    assert encoded_bytes("bit8", 128 * 1000) * 8 == 8.0625 * 128 * 1000
    assert encoded_bytes("bit8", 1) == 2  # no padding doubles a small tensor


# ---- special values ----------------------------------------------------------------------------------


@blocks
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_a_non_finite_element_stays_alone(block_size: int, special: float) -> None:
    clean = gradient_like(3 * block_size + 7)
    for place in (0, block_size + 1, clean.size - 1):
        x = clean.copy()
        x[place] = 0.0  # keeps the block's amax with and without the special value
        expected = bit8_round_trip(x, block_size)
        x[place] = special
        decoded = bit8_round_trip(x, block_size)
        assert np.isnan(decoded[place])
        assert np.signbit(decoded[place]) == np.signbit(x[place])
        neighbours = np.arange(x.size) != place
        assert_same_bits(decoded[neighbours], expected[neighbours])
        halves = bit16_round_trip(x)
        assert_same_bits(halves[place : place + 1], np.float32([special]))


def test_blocks_without_a_finite_element() -> None:
    x = np.full(64, np.nan, dtype=np.float32)
    x[:32] = -np.inf
    run = bit8_encode(x, 32)
    assert run.tolist() == [1, 1] + [0xFF] * 32 + [0x7F] * 32


@blocks
def test_zeros_keep_their_sign(block_size: int) -> None:
    x = np.zeros(2 * block_size, dtype=np.float32)
    x[::3] = -0.0
    assert_same_bits(bit8_round_trip(x, block_size), x)
    x[block_size] = 5.0
    assert_same_bits(np.signbit(bit8_round_trip(x, block_size)), np.signbit(x))
    assert_same_bits(bit16_round_trip(np.float32([0.0, -0.0])), np.float32([0.0, -0.0]))


def test_denormals() -> None:
    x = np.float32([1e-45, -1e-39, 2.0**-127, 2.0**-135])
    # The smallest scale, 2^-126, makes 2^-135 the smallest magnitude on the wire.
    rounded = -(2.0**-135) * round(1e-39 * 2.0**135)
    assert bit8_round_trip(x).tolist() == [0.0, rounded, 2.0**-127, 2.0**-135]
    assert bit16_round_trip(x).tolist() == [0.0, -0.0, 0.0, 0.0]


def test_the_largest_floats() -> None:
    x = np.float32([2.0**127, -1.875 * 2.0**127, 2.0**110])
    assert bit8_round_trip(x).tolist() == [2.0**127, -1.875 * 2.0**127, 0.0]
    # Above that, the nearest four-bit number is 2^128, which float32 writes as infinity.
    below_tie = np.nextafter(np.float32(1.9375 * 2.0**127), np.float32(0))
    assert bit8_round_trip(np.float32([below_tie]))[0] == 1.875 * 2.0**127
    assert_same_bits(bit8_round_trip(np.float32([FLT_MAX, -FLT_MAX])), np.float32([np.inf, -np.inf]))


def test_bit16_saturates_finite_values_and_counts_them() -> None:
    x = np.float32([65504, 65519.996, 65520, -65536, FLT_MAX, np.inf, -np.inf, np.nan, 1.0])
    assert bit16_round_trip(x)[:7].tolist() == [65504, 65504, 65504, -65504, 65504, np.inf, -np.inf]
    assert bit16_saturated(x) == 3
    assert bit16_saturated(x, prescale=2.0) == 4  # 2 * FLT_MAX is infinite, so it does not count
    assert bit16_saturated(x, prescale=0.5) == 1
    assert bit16_saturated(np.float32([])) == 0


@pytest.mark.parametrize("prescale", PRESCALES)
def test_prescale_multiplies_in_float32_before_everything_else(prescale: float) -> None:
    x = gradient_like(1000)
    product = x * np.float32(prescale)
    assert_same_bits(bit8_encode(x, prescale=prescale), bit8_encode(product))
    assert_same_bits(bit16_encode(x, prescale=prescale), bit16_encode(product))
    assert bit16_saturated(x, prescale) == bit16_saturated(product)


def test_a_prescale_beyond_the_range_ends_in_infinity_not_in_a_number() -> None:
    x = np.float32([1e20, 1.0])
    decoded = bit8_decode(bit8_encode(x, prescale=1e30), 2)
    assert np.isnan(decoded[0])
    assert abs(decoded[1] / 1e30 - 1) <= 1 / 16
    assert bit16_decode(bit16_encode(x, prescale=1e30), 2).tolist() == [np.inf, 65504]


@pytest.mark.parametrize(("scale", "unit"), [(0, 2.0**-127), (1, 2.0**-126), (127, 1.0), (246, 2.0**119)])
def test_all_codes_at_the_ends_of_the_scale(scale: int, unit: float) -> None:
    codes = np.arange(256, dtype=np.uint8)
    decoded = bit8_decode(np.concatenate([np.array([scale] * 8, dtype=np.uint8), codes]), 256, 32)
    plain = bit8_decode(np.concatenate([np.array([127] * 8, dtype=np.uint8), codes]), 256, 32)
    number = ~np.isnan(plain)
    assert np.array_equal(decoded[number], plain[number] * unit)
    assert_same_bits(decoded[~number], plain[~number])


def test_scale_bytes_that_encoding_never_writes_are_read_as_mx_says() -> None:
    codes = np.array([0x38, 0x7E, 0x00] + [0] * 29, dtype=np.uint8)
    assert bit8_decode(np.append(np.uint8(254), codes), 32, 32)[:3].tolist() == [2.0**127, np.inf, 0.0]
    assert np.isnan(bit8_decode(np.append(np.uint8(255), codes), 32, 32)).all()


# ---- error bounds, as docs/compression.md derives them -----------------------------------------------


@blocks
@pytest.mark.parametrize("values", [gradient_like, random_patterns])
def test_bit8_error_bounds(block_size: int, values: Callable[[int], NDArray[np.float32]]) -> None:
    x = values(20 * block_size + 5)
    x = np.where(np.abs(x) < 2.0**127, x, np.float32(1.0))  # NaN compares false
    run = bit8_encode(x, block_size)
    scale = scales_per_element(run, x.size, block_size)
    error = np.abs(bit8_decode(run, x.size, block_size).astype(np.float64) - x)
    normal = np.abs(x) >= 2.0**-6 * scale
    assert (error[normal] <= np.abs(x[normal]).astype(np.float64) / 17).all()
    assert (error[~normal] <= 2.0**-10 * scale[~normal]).all()
    for start in range(0, x.size, block_size):
        part = slice(start, start + block_size)
        amax = max(float(np.abs(x[part]).max()), 2.0**-118)
        assert (error[part] <= np.maximum(np.abs(x[part]) / 16, amax / 229_376)).all()


def test_bit16_error_bounds() -> None:
    x = random_patterns(100_000)
    x = x[np.abs(x) <= 65504]
    error = np.abs(bit16_round_trip(x).astype(np.float64) - x)
    normal = np.abs(x) >= 2.0**-14
    assert (error[normal] <= np.abs(x[normal]).astype(np.float64) / 2049).all()
    assert (error[~normal] <= 2.0**-25).all()


@pytest.mark.parametrize("size", [1.0, 1e-6, 3e4])
def test_normalised_mean_square_error_of_normal_values(size: float) -> None:
    x = (np.random.default_rng(1).standard_normal(400_000) * size).astype(np.float32)
    for block_size in BLOCK_SIZES:
        assert 6.9e-4 <= nmse(bit8_round_trip(x, block_size), x) <= 7.2e-4
    if size == 1.0:  # float16 has no scale: values far from 1 leave its range
        assert 4.2e-8 <= nmse(bit16_round_trip(x), x) <= 4.5e-8


def test_nmse_itself() -> None:
    assert nmse([3.0, 4.0], [3.0, 4.0]) == 0.0
    assert nmse([0.0, 4.0], [3.0, 4.0]) == 9 / 25
    assert nmse([], []) == 0.0


# ---- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [0, 1, 16, 48, 100, 2048, -128])
def test_other_block_sizes_are_refused(block_size: int) -> None:
    for use in (
        lambda: bit8_encode(np.zeros(4, np.float32), block_size),
        lambda: bit8_decode(np.zeros(5, np.uint8), 4, block_size),
        lambda: encoded_bytes("bit8", 4, block_size),
    ):
        with refused(errors.wrong_block_size, block_size=block_size):
            use()


def test_wrong_dtypes_names_and_lengths_are_refused() -> None:
    for dtype in ("int32", "bool", "complex64"):
        for encode in (bit8_encode, bit16_encode):
            with refused(errors.no_floats, dtype=dtype):
                encode(np.zeros(4, dtype))
    with refused(errors.no_codec, codec="bit4"):
        encoded_bytes("bit4", 10)
    with refused(errors.negative_count, count=-1):
        encoded_bytes("bit16", -1)
    for wrong_run in (np.zeros(9, np.uint8), np.zeros(8, np.int8), np.zeros((2, 4), np.uint8)):
        with refused(errors.wrong_run, expected=8, shape=wrong_run.shape):
            bit16_decode(wrong_run, 4)
    with refused(errors.wrong_run, expected=5, shape=(4,)):
        bit8_decode(np.zeros(4, np.uint8), 4)
