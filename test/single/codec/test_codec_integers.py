"""The NumPy codecs int8 and int4: scales, special values, error bounds, rotation and Lloyd-Max levels."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from codec_cases import BLOCK_SIZES, COUNTS, assert_same_bits, float32_sweep, gradient_like, random_patterns
from numpy.typing import NDArray
from refusals import refused

from horovod.common import errors
from horovod.common.numpy_codec import (
    encoded_bytes,
    hadamard,
    int4_decode,
    int4_encode,
    int8_decode,
    int8_encode,
    named_codec,
    nmse,
    rotated_decode,
    rotated_encode,
    rotation_signs,
)
from horovod.common.numpy_codec.integer_runs import LLOYD_LEVELS, LLOYD_THRESHOLDS

Float32s = NDArray[np.float32]
FLT_MAX = np.finfo(np.float32).max
INTEGERS = ("int8/{}", "int4/{}", "int4/{}/hadamard", "int4/{}/hadamard/lloyd/seed4")
blocks = pytest.mark.parametrize("block_size", BLOCK_SIZES)
formats = pytest.mark.parametrize("name", INTEGERS)


def round_trip(name: str, x: Float32s) -> Float32s:
    codec = named_codec(name)
    return codec.decode(codec.encode(x), x.size)


# ---- plain integers ----------------------------------------------------------------------------------


def test_runs_worked_by_hand() -> None:
    x = np.zeros(35, dtype=np.float32)
    x[0], x[1], x[2], x[34] = 127.0, -0.5, 1.5, -254.0
    run = int8_encode(x, 32)
    assert run[:8].view(np.float32).tolist() == [1.0, 2.0]
    assert run[8:].view(np.int8).tolist() == [127, 0, 2] + [0] * 31 + [-127]  # ties go to the even integer
    x[0], x[1], x[2], x[34] = 7.0, -1.0, 2.5, -14.0
    run = int4_encode(x, 32)
    assert run[:8].view(np.float32).tolist() == [1.0, 2.0]
    assert run[8:].tolist() == [0xF7, 0x02] + [0] * 15 + [0x09]  # the odd one at the end has zeros above it
    assert int4_decode(run, 35, 32).tolist() == [7.0, -1.0, 2.0] + [0.0] * 31 + [-14.0]


@pytest.mark.parametrize("name", ["int8/{}", "int4/{}"])
@blocks
def test_scales_are_normal_and_lose_nothing_of_the_largest(name: str, block_size: int) -> None:
    amax = np.abs(float32_sweep())
    amax = amax[np.isfinite(amax) & (amax > 2.0**-118)][::7]
    x = np.zeros((amax.size, block_size), np.float32)
    x[:, 5] = -amax
    decoded = round_trip(name.format(block_size), x.ravel()).reshape(x.shape)
    assert np.isfinite(decoded).all()
    assert (np.abs(decoded[:, 5].astype(np.float64) / x[:, 5] - 1) <= 2.0**-22).all()
    assert np.count_nonzero(decoded) == amax.size


@formats
@pytest.mark.parametrize("value", [FLT_MAX, -FLT_MAX, 2.0**127, 3e38])
def test_nothing_finite_overflows(name: str, value: float) -> None:
    i = np.arange(300)
    for x in (np.full(300, value), np.where(i % 3, value, -value), np.where(i == 4, value, 0)):
        decoded = round_trip(name.format(64), x.astype(np.float32))
        assert np.isfinite(decoded).all()
        assert nmse(decoded, x) < 0.05


@formats
@blocks
def test_zeros_and_denormals(name: str, block_size: int) -> None:
    zeros = np.zeros(2 * block_size + 3, np.float32)
    zeros[::3] = -0.0
    assert (round_trip(name.format(block_size), zeros) == 0).all()
    x = np.random.default_rng(0).uniform(-1, 1, 4 * block_size + 1).astype(np.float32)
    tiny = x * np.float32(2.0**-130)
    decoded = round_trip(name.format(block_size), tiny)
    assert np.abs(decoded.astype(np.float64) - tiny).max() <= 2.0**-126 * block_size


@blocks
@pytest.mark.parametrize("special", [np.nan, -np.nan, np.inf, -np.inf])
def test_int8_marks_a_non_finite_element_and_int4_its_block(block_size: int, special: float) -> None:
    clean = gradient_like(3 * block_size + 7)
    for place in (0, block_size + 1, clean.size - 1):
        x = clean.copy()
        x[place] = 0.0
        expected = round_trip(f"int8/{block_size}", x)
        x[place] = special
        decoded = round_trip(f"int8/{block_size}", x)
        assert np.flatnonzero(np.isnan(decoded)).tolist() == [place]
        others = np.arange(x.size) != place
        assert_same_bits(decoded[others], expected[others])
        spoilt = np.arange(x.size) // block_size == place // block_size
        for name in INTEGERS[1:]:
            decoded = round_trip(name.format(block_size), x)
            assert np.array_equal(np.isnan(decoded), spoilt)
            assert_same_bits(decoded[~spoilt], round_trip(name.format(block_size), clean)[~spoilt])


@formats
@blocks
@pytest.mark.parametrize("count", COUNTS)
def test_runs_of_any_length_are_blocks_side_by_side(name: str, block_size: int, count: int) -> None:
    x = gradient_like(count)
    codec = named_codec(name.format(block_size))
    run = codec.encode(x)
    assert run.size == encoded_bytes(name.split("/")[0], count, block_size)
    decoded = codec.decode(run, count)
    assert (decoded.dtype, decoded.shape) == (np.float32, (count,))
    for start in range(0, count, block_size):
        alone = x[start : start + block_size]
        assert_same_bits(decoded[start : start + block_size], codec.decode(codec.encode(alone), alone.size))


@blocks
@pytest.mark.parametrize(("name", "largest"), [("int8/{}", 127), ("int4/{}", 7)])
def test_errors_are_at_most_half_a_step(block_size: int, name: str, largest: int) -> None:
    x = random_patterns(40 * block_size + 5)
    x = np.where(np.isfinite(x), x, np.float32(1.0))
    decoded = round_trip(name.format(block_size), x)
    for start in range(0, x.size, block_size):
        part = slice(start, start + block_size)
        step = max(float(np.abs(x[part]).max()) / largest, 2.0**-126)
        assert (np.abs(decoded[part].astype(np.float64) - x[part]) <= step * (0.5 + 1e-4)).all()


@pytest.mark.parametrize(("name", "lowest", "highest"), [
    ("bit8/128", 6.9e-4, 7.2e-4), ("bit8/128/e5m2", 2.7e-3, 2.85e-3), ("bit8/256/e3m4", 1.7e-4, 1.8e-4),
    ("int8/128", 4.1e-5, 4.3e-5), ("int4/128", 1.35e-2, 1.41e-2), ("int4/128/hadamard", 1.35e-2, 1.41e-2),
    ("int4/128/hadamard/lloyd", 9.2e-3, 9.5e-3), ("int4/1024/hadamard/lloyd", 9.3e-3, 9.6e-3),
    ("bit8/128/stochastic", 1.38e-3, 1.44e-3), ("int8/128/stochastic", 8.2e-5, 8.6e-5),
    ("int4/128/stochastic", 2.7e-2, 2.82e-2),
])
@pytest.mark.parametrize("size", [1.0, 1e-6, 3e4])
def test_normalised_mean_square_error(name: str, lowest: float, highest: float, size: float) -> None:
    x = (np.random.default_rng(1).standard_normal(400_000) * size).astype(np.float32)
    assert lowest <= nmse(round_trip(name, x), x) <= highest


# ---- rotation ----------------------------------------------------------------------------------------


@blocks
def test_the_transform_is_the_walsh_hadamard_matrix(block_size: int) -> None:
    matrix = hadamard(np.eye(block_size, dtype=np.float32))
    i = np.arange(block_size)
    ones_in_common = np.bitwise_count(i[:, None] & i[None, :])
    assert np.array_equal(matrix, np.where(ones_in_common % 2, -1.0, 1.0))
    x = gradient_like(3 * block_size).reshape(3, block_size)
    back = hadamard(hadamard(x)) / np.float32(block_size)
    assert np.abs(back - x).max() <= 1e-5 * np.abs(x).max()


@blocks
def test_signs_come_from_the_seed_and_are_balanced(block_size: int) -> None:
    signs = rotation_signs(0, block_size)
    assert set(np.unique(signs)) == {0, 1 << 31}
    assert abs(np.count_nonzero(signs) - block_size / 2) <= 3 * math.sqrt(block_size)
    different = np.count_nonzero(signs != rotation_signs(1, block_size))
    assert abs(different - block_size / 2) <= 3 * math.sqrt(block_size)


def test_rotation_is_for_outliers() -> None:
    random = np.random.default_rng(2)
    x = random.standard_normal(128 * 500).astype(np.float32)
    x[::128] = 30  # one in each block
    usual = np.arange(x.size) % 128 != 0
    plain, rotated, lloyd = (
        nmse(round_trip(name, x)[usual], x[usual])
        for name in ("int4/128", "int4/128/hadamard", "int4/128/hadamard/lloyd")
    )
    # Without rotation a step is 30 / 7 and most of a block becomes zero; with it elements share the error.
    assert plain > 0.6
    assert rotated < 0.1
    assert lloyd < 0.1


def test_the_seed_changes_the_bytes_of_full_blocks_only() -> None:
    x = gradient_like(128 * 3 + 50)
    one, two = (rotated_encode(x, 128, seed=seed) for seed in (1, 2))
    assert not np.array_equal(one[16 : 16 + 192], two[16 : 16 + 192])
    assert_same_bits(one[16 + 192 :], two[16 + 192 :])
    assert_same_bits(rotated_decode(one, x.size, 128, seed=1)[384:], round_trip("int4/128", x[384:]))


# ---- Lloyd-Max levels --------------------------------------------------------------------------------


def gaussian_levels() -> tuple[list[float], list[float]]:
    """Positive levels and thresholds of the optimal 16-level quantiser, by fixed-point iteration."""

    def density(x: float) -> float:
        return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)

    def beyond(x: float) -> float:
        return 0.5 * math.erfc(x / math.sqrt(2))

    thresholds = [0.4 * i for i in range(1, 8)]
    for _ in range(4000):
        edges = [0.0, *thresholds, math.inf]
        levels = [(density(a) - density(b)) / (beyond(a) - beyond(b)) for a, b in pairwise(edges)]
        thresholds = [(a + b) / 2 for a, b in pairwise(levels)]
    return levels, thresholds


def test_levels_are_those_of_lloyd_and_max() -> None:
    levels, thresholds = gaussian_levels()
    assert_same_bits(LLOYD_LEVELS, np.float32(levels))
    assert_same_bits(LLOYD_THRESHOLDS, np.float32(thresholds))
    # Max's table of 1960 has four digits.
    published = np.float32([0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733])
    assert np.abs(LLOYD_LEVELS - published).max() < 1e-3


def test_lloyd_codes_are_the_nearest_levels() -> None:
    x = np.random.default_rng(5).standard_normal(128 * 200).astype(np.float32)
    signs = rotation_signs(0, 128)
    run = rotated_encode(x, 128, lloyd=True)
    scales = run[: 4 * 200].view(np.float32)
    rows = (x.view(np.uint32).reshape(-1, 128) ^ signs).view(np.float32)
    unit = hadamard(rows).astype(np.float64) / (scales.astype(np.float64) * 128)[:, None]
    assert abs(float((unit**2).mean()) - 1) < 1e-6  # the scale is the rms
    both = np.concatenate([-LLOYD_LEVELS[::-1], LLOYD_LEVELS]).astype(np.float64)
    codes = np.stack([run[800:] & 15, run[800:] >> 4], axis=1).reshape(-1, 128)
    chosen = np.where(codes < 8, 1, -1) * LLOYD_LEVELS[codes & 7].astype(np.float64)
    distance = np.abs(unit[..., None] - both)
    assert (np.abs(unit - chosen) <= distance.min(axis=-1) + 1e-6).all()


def test_refusals() -> None:
    for use in (int8_encode, int4_encode, rotated_encode):
        with refused(errors.wrong_block_size, block_size=16):
            use(np.zeros(4, np.float32), 16)
    for decode, expected in ((int8_decode, 8), (int4_decode, 6)):
        with refused(errors.wrong_run, expected=expected, shape=(9,)):
            decode(np.zeros(9, np.uint8), 4)
    for name in ("bit4/128", "bit8", "bit16/1"):
        with refused(errors.no_codec_name, codec=name):
            named_codec(name)
    with refused(errors.no_codec_options, codec="bit8/128/fast", options=["fast"]):
        named_codec("bit8/128/fast")
