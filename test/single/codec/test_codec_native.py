"""Compares the native codecs with the NumPy twin, byte for byte, at every instruction set of this machine."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codec_cases import (
    BLOCK_SIZES,
    COUNTS,
    DTYPES,
    NAMES,
    PLAIN_NAMES,
    PRESCALES,
    all_16_bit_values,
    assert_same_bits,
    float32_sweep,
    gradient_like,
    half_boundaries,
    in_blocks_of_scale_one,
    minifloat_boundaries,
    random_patterns,
    with_specials,
)
from native_codec import (
    LEVELS,
    NUMPY_DTYPES,
    Float32s,
    Guarded,
    added,
    assert_is_the_twin,
    decode,
    decode_add,
    decode_two,
    encode,
    placed,
    widened,
)
from refusals import refused

from horovod import _native as native
from horovod.common.exceptions import WrongArgument
from horovod.common.numpy_codec import E3M4, E4M3, E5M2, encoded_bytes, named_codec

levels = pytest.mark.parametrize("level", LEVELS)
blocks = pytest.mark.parametrize("block_size", BLOCK_SIZES)
float_dtypes = pytest.mark.parametrize("dtype", DTYPES)
names = pytest.mark.parametrize("name", NAMES)

ENCODER_INPUTS = {
    "sweep": float32_sweep(),
    "sweep shuffled": np.random.default_rng(2).permutation(float32_sweep()),
    "random patterns": random_patterns(200_000),
    "half boundaries": half_boundaries(),
    "8-bit boundaries": np.concatenate([minifloat_boundaries(fmt) for fmt in (E4M3, E5M2, E3M4)]),
    "all bfloat16": all_16_bit_values(ml_dtypes.bfloat16),
    "all halves": all_16_bit_values(np.float16),
}
encoder_inputs = pytest.mark.parametrize("x", ENCODER_INPUTS.values(), ids=ENCODER_INPUTS.keys())


@encoder_inputs
@names
def test_elements(x: Float32s, name: str) -> None:
    assert_is_the_twin(name, x, key=3, first=17)


@encoder_inputs
@pytest.mark.parametrize("block_size", [32, 128])
@pytest.mark.parametrize("fmt", [E4M3, E5M2, E3M4], ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_bit8_elements_under_scale_one(x: Float32s, block_size: int, fmt: Any, rounding: str) -> None:
    """Each block begins with the format's largest value, so its scale is 1 and small elements survive."""
    name = native.get_codec("bit8", block_size, variant=fmt.name, rounding=rounding).name
    assert_is_the_twin(name, in_blocks_of_scale_one(x, block_size, fmt.max_value))


@blocks
@pytest.mark.parametrize(
    "name",
    [
        *PLAIN_NAMES,
        "int8/{}/stochastic",
        "int4/{}/hadamard",
        "int4/{}/hadamard/lloyd",
    ],
)
def test_scales_over_the_whole_range(block_size: int, name: str) -> None:
    """Each block is in a different binade, with the sweep's edge mantissas as its largest element."""
    sweep = np.unique(np.abs(float32_sweep()))  # which has both signs of each
    largest = sweep[np.isfinite(sweep)][::29]
    below = np.random.default_rng(3).uniform(-1, 1, (largest.size, block_size)).astype(np.float32)
    x = below * largest[:, None]
    x[:, block_size // 2] = largest
    assert_is_the_twin(name.format(block_size), x.ravel())


@levels
@blocks
@pytest.mark.parametrize("variant", ["e4m3", "e5m2", "e3m4"])
def test_all_256_codes_decode_at_every_scale(level: str, block_size: int, variant: str) -> None:
    codec = native.get_codec("bit8", block_size, variant=variant, level=level)
    per_scale = max(256, block_size)
    codes = np.resize(np.arange(256, dtype=np.uint8), 256 * per_scale)
    scales = np.arange(256, dtype=np.uint8).repeat(per_scale // block_size)
    run = np.concatenate([scales, codes])
    expected = named_codec(codec.name).decode(run, codes.size)
    values = decode(codec, run, codes.size)
    # If scale and code are both NaN, the processor chooses the one that gives the sign.
    plain = named_codec(codec.name).decode(np.concatenate([np.full_like(scales, 127), codes]), codes.size)
    both = (scales.repeat(block_size) == 255) & np.isnan(plain)
    assert np.isnan(values[both]).all()
    assert_same_bits(values[~both], expected[~both])
    start = gradient_like(codes.size)
    assert_same_bits(decode_add(codec, run, start)[~both], added(start, expected)[~both])
    halved = added(expected, expected) * np.float32(0.5)
    assert_same_bits(decode_two(codec, run, run, codes.size, 0.5)[~both], halved[~both])


@levels
@blocks
@pytest.mark.parametrize("name", ["int8/{}", "int4/{}", "int4/{}/hadamard", "int4/{}/hadamard/lloyd/seed5"])
def test_all_integer_codes_decode_at_scales_of_every_kind(level: str, block_size: int, name: str) -> None:
    codec = native.codec_named(name.format(block_size), level=level)
    scales = np.concatenate([float32_sweep()[::997], np.float32([0.0, -1.0, np.inf, 3e38, 1e-45, np.nan])])
    scales = np.where(np.isnan(scales), np.float32(np.nan), scales)
    count = scales.size * block_size
    code_bytes = codec.encoded_bytes(count) - 4 * scales.size
    codes = np.resize(np.arange(256, dtype=np.uint8), code_bytes)
    run = np.concatenate([scales.view(np.uint8), codes])
    expected = named_codec(codec.name).decode(run, count)
    # An infinite scale times a zero code is NaN, with a sign chosen by the processor.
    own = np.isnan(expected) & np.isinf(scales).repeat(block_size)
    values = decode(codec, run, count)
    assert np.isnan(values[own]).all()
    assert_same_bits(values[~own], expected[~own])
    start = gradient_like(count)
    assert_same_bits(decode_add(codec, run, start)[~own], added(start, expected)[~own])


@levels
def test_all_65536_halves_decode(level: str) -> None:
    codec = native.get_codec("bit16", level=level)
    run = np.arange(65536, dtype="<u2").view(np.uint8)
    expected = named_codec("bit16").decode(run, 65536)
    assert_same_bits(decode(codec, run, 65536), expected)
    start = gradient_like(65536)
    assert_same_bits(decode_add(codec, run, start), added(start, expected))


@names
@pytest.mark.parametrize("count", COUNTS)
def test_runs_of_any_length(name: str, count: int) -> None:
    codec = native.codec_named(name)
    format_name = name.split("/")[0]
    block_size = codec.block_size if "/" in name else 128
    assert codec.encoded_bytes(count) == encoded_bytes(format_name, count, block_size)
    assert_is_the_twin(name, gradient_like(count))
    assert_is_the_twin(name, with_specials(gradient_like(count)))


@blocks
@pytest.mark.parametrize("name", [*PLAIN_NAMES, "int4/{}/hadamard"])
def test_blocks_of_any_size(block_size: int, name: str) -> None:
    name = name.format(block_size)
    for count in (block_size - 1, block_size, block_size + 1, 5 * block_size + 3, 4096, 4097, 10_001):
        assert_is_the_twin(name, gradient_like(count))
    assert_is_the_twin(name, gradient_like(5000), prescale=0.3)


@levels
@names
@pytest.mark.parametrize("offset", [1, 2, 3, 7, 33])
def test_runs_and_tensors_at_odd_addresses(level: str, name: str, offset: int) -> None:
    codec, twin = native.codec_named(name, level=level), named_codec(name)
    x = placed(with_specials(gradient_like(1000)), 4 * offset)
    run, _ = encode(codec, x, offset=offset)
    assert_same_bits(run, twin.encode(x))
    expected = twin.decode(run, x.size)
    assert_same_bits(decode(codec, run, x.size, offset=4 * offset), expected)
    start = gradient_like(x.size, seed=4)
    assert_same_bits(decode_add(codec, run, start, offset=4 * offset), added(start, expected))
    other, _ = encode(codec, start, offset=offset + 1)
    averages = added(twin.decode(other, x.size), expected) * np.float32(0.5)
    assert_same_bits(decode_two(codec, other, run, x.size, 0.5, offset=4 * offset), averages)


@names
@pytest.mark.parametrize("prescale", PRESCALES)
def test_prescale(name: str, prescale: float) -> None:
    assert_is_the_twin(name, with_specials(gradient_like(3000)), prescale)
    assert_is_the_twin(name, random_patterns(30_000), prescale)


@names
@float_dtypes
def test_other_inputs_are_rounded_to_float32(name: str, dtype: str) -> None:
    if NUMPY_DTYPES[dtype].itemsize == 2:
        x = np.arange(65536, dtype=np.uint16).view(NUMPY_DTYPES[dtype])
    else:
        x = widened(float32_sweep(), dtype)
    assert_is_the_twin(name, x)
    assert_is_the_twin(name, x[:1001], prescale=1 / 3)
    if dtype == "float64":
        between = widened(float32_sweep()[::3], dtype)
        for factor in (1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 1 - 2.0**-25, 1e-300, 1e300):
            with np.errstate(over="ignore", invalid="ignore"):
                assert_is_the_twin(name, between * factor)


@levels
@names
@float_dtypes
def test_other_outputs_are_rounded_from_float32(level: str, name: str, dtype: str) -> None:
    codec = native.codec_named(name, level=level)
    x = random_patterns(50_000) if "/" in name else all_16_bit_values(np.float16)
    run, _ = encode(codec, x)
    values = named_codec(name).decode(run, x.size)
    with np.errstate(over="ignore"):
        expected = values.astype(NUMPY_DTYPES[dtype])
    decoded = decode(codec, run, x.size, dtype)
    number = ~np.isnan(values)
    assert_same_bits(decoded[number], expected[number])
    assert np.isnan(decoded[~number].astype(np.float32)).all()
    assert np.array_equal(np.signbit(decoded.astype(np.float32)), np.signbit(values))


@levels
@names
def test_adding_decoded_values_keeps_nan_and_infinity(level: str, name: str) -> None:
    codec = native.codec_named(name, level=level)
    run, _ = encode(codec, np.float32([1.0, np.nan, 1.0, np.inf]))
    sums = decode_add(codec, run, np.float32([np.nan, 1.0, np.inf, 1.0]))
    assert not np.isfinite(sums).any()


@levels
@names
def test_non_finite_elements_stay_non_finite_and_spoil_no_other_block(level: str, name: str) -> None:
    codec = native.codec_named(name, level=level)
    block = max(codec.block_size, 32)
    clean = gradient_like(4 * block + 7)
    x = clean.copy()
    x[block + 3], x[3 * block], x[-1] = np.nan, np.inf, -np.inf
    clean[[block + 3, 3 * block, -1]] = 0.0
    values, expected = (decode(codec, encode(codec, data)[0], data.size) for data in (x, clean))
    assert not np.isfinite(values[[block + 3, 3 * block, -1]]).any()
    untouched = np.r_[0:block, 2 * block : 3 * block]
    assert_same_bits(values[untouched], expected[untouched])
    twin = named_codec(name)
    spoils_its_block = np.isnan(twin.decode(twin.encode(np.float32([np.nan, 1.0])), 2)).all()
    spoilt_blocks = np.r_[block : 2 * block, 3 * block : x.size]
    neighbours = np.setdiff1d(spoilt_blocks, [block + 3, 3 * block, x.size - 1])
    assert np.isnan(values[neighbours]).all() == spoils_its_block
    if not spoils_its_block:
        assert_same_bits(values[neighbours], expected[neighbours])


@levels
def test_saturation_is_counted_over_long_runs(level: str) -> None:
    x = np.tile(np.float32([1e6, -1e6, np.inf, 65519, np.nan, 65520]), 100_000)
    _, saturated = encode(native.get_codec("bit16", level=level), x)
    assert saturated == 300_000
    assert encode(native.get_codec("bit8", level=level), x)[1] == 0


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [0, 1, 2, 3, 4, 8, 10, -1])
def test_other_dtypes_are_refused_and_nothing_is_written(name: str, dtype: int) -> None:
    codec = native.codec_named(name)
    x, output = np.zeros(64, dtype=np.float64), Guarded(0)
    with refused(WrongArgument, "codec_takes_floats", value=dtype):
        codec.encode(x.ctypes.data, dtype, 64, output.address)
    with refused(WrongArgument, "codec_takes_floats", value=dtype):
        codec.decode(x.ctypes.data, 64, output.address, dtype)
    output.check()


@names
def test_negative_counts_are_refused(name: str) -> None:
    codec = native.codec_named(name)
    x = np.zeros(64, dtype=np.float32).ctypes.data
    for parameter, use in (
        ("count", lambda: codec.encoded_bytes(-1)),
        ("count", lambda: codec.encode(x, DTYPES["float32"], -1, x)),
        ("first", lambda: codec.encode(x, DTYPES["float32"], 0, x, first=-1)),
        ("count", lambda: codec.decode(x, -1, x, DTYPES["float32"])),
        ("count", lambda: codec.decode_add(x, -1, x)),
    ):
        with refused(WrongArgument, "negative", parameter=parameter, value=-1):
            use()
