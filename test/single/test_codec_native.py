"""The native codecs, at every instruction set this machine runs, byte for byte against the NumPy twin."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from codec_cases import (
    BLOCK_SIZES,
    COUNTS,
    DTYPES,
    PRESCALES,
    all_16_bit_values,
    assert_same_bits,
    e4m3_boundaries,
    float32_sweep,
    gradient_like,
    half_boundaries,
    in_blocks_of_scale_one,
    random_patterns,
    with_specials,
)
from numpy.typing import NDArray

from horovod import _native as native
from horovod.common import numpy_codec

Bytes = NDArray[np.uint8]
Float32s = NDArray[np.float32]

GUARD = 64  # bytes before and after every output, which must stay as they are
GUARD_BYTE = 0xA5
NUMPY_DTYPES = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in DTYPES}

LEVELS = native.simd_levels()
levels = pytest.mark.parametrize("level", LEVELS)
blocks = pytest.mark.parametrize("block_size", BLOCK_SIZES)
float_dtypes = pytest.mark.parametrize("dtype", DTYPES)
codecs = pytest.mark.parametrize(("name", "block_size"), [("bit8", 128), ("bit8", 32), ("bit16", 0)])


class Guarded:
    """An output of `nbytes` at `offset` bytes past an aligned address, between guards."""

    def __init__(self, nbytes: int, offset: int = 0) -> None:
        self._memory = np.full(nbytes + 2 * GUARD + offset + 64, GUARD_BYTE, dtype=np.uint8)
        self._start = -self._memory.ctypes.data % 64 + GUARD + offset
        self.bytes = self._memory[self._start : self._start + nbytes]
        self.address = self._memory.ctypes.data + self._start

    def check(self) -> None:
        assert (self._memory[: self._start] == GUARD_BYTE).all(), "written before the output"
        assert (self._memory[self._start + self.bytes.size :] == GUARD_BYTE).all(), "written past the output"


def placed(x: NDArray[Any], offset: int) -> NDArray[Any]:
    """A copy of x that starts `offset` bytes past a 64-byte boundary."""
    output = Guarded(x.nbytes, offset)
    output.bytes[:] = np.ascontiguousarray(x).view(np.uint8)
    return output.bytes.view(x.dtype)


def encode(codec: Any, x: NDArray[Any], prescale: float = 1.0, offset: int = 0) -> tuple[Bytes, int]:
    run = Guarded(codec.encoded_bytes(x.size), offset)
    saturated = codec.encode(x.ctypes.data, DTYPES[x.dtype.name], x.size, run.address, prescale)
    run.check()
    return run.bytes, saturated


def decode(codec: Any, run: Bytes, count: int, dtype: str = "float32", offset: int = 0) -> NDArray[Any]:
    values = Guarded(count * NUMPY_DTYPES[dtype].itemsize, offset)
    codec.decode(run.ctypes.data, count, values.address, DTYPES[dtype])
    values.check()
    return values.bytes.view(NUMPY_DTYPES[dtype])


def decode_add(codec: Any, run: Bytes, start: Float32s, offset: int = 0) -> Float32s:
    sums = Guarded(start.nbytes, offset)
    sums.bytes[:] = start.view(np.uint8)
    codec.decode_add(run.ctypes.data, start.size, sums.address)
    sums.check()
    return sums.bytes.view(np.float32)


def twin_encode(codec: Any, x: NDArray[Any], prescale: float = 1.0) -> tuple[Bytes, int]:
    with np.errstate(over="ignore", invalid="ignore"):
        x = x.astype(np.float32)
    if codec.name == "bit16":
        return numpy_codec.bit16_encode(x, prescale), numpy_codec.bit16_saturated(x, prescale)
    return numpy_codec.bit8_encode(x, codec.block_size, prescale), 0


def twin_decode(codec: Any, run: Bytes, count: int) -> Float32s:
    if codec.name == "bit16":
        return numpy_codec.bit16_decode(run, count)
    return numpy_codec.bit8_decode(run, count, codec.block_size)


def widened(x: Float32s, dtype: str) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):  # signalling NaN become quiet
        return x.astype(NUMPY_DTYPES[dtype])


def added(start: Float32s, values: Float32s) -> Float32s:
    with np.errstate(over="ignore", invalid="ignore"):
        return start + values


def assert_is_the_twin(codec: Any, x: NDArray[Any], prescale: float = 1.0) -> None:
    """Encode, decode and decode_add of x give the NumPy twin's bytes."""
    run, saturated = encode(codec, x, prescale)
    expected, expected_saturated = twin_encode(codec, x, prescale)
    assert_same_bits(run, expected)
    assert saturated == expected_saturated
    values = twin_decode(codec, run, x.size)
    assert_same_bits(decode(codec, run, x.size), values)
    start = gradient_like(x.size, seed=9)
    assert_same_bits(decode_add(codec, run, start), added(start, values))


ENCODER_INPUTS = {
    "sweep": float32_sweep(),
    "sweep shuffled": np.random.default_rng(2).permutation(float32_sweep()),
    "random patterns": random_patterns(200_000),
    "half boundaries": half_boundaries(),
    "e4m3 boundaries": e4m3_boundaries(),
    "all bfloat16": all_16_bit_values(ml_dtypes.bfloat16),
    "all halves": all_16_bit_values(np.float16),
}
encoder_inputs = pytest.mark.parametrize("x", ENCODER_INPUTS.values(), ids=ENCODER_INPUTS.keys())


@levels
@encoder_inputs
def test_bit16_elements(level: str, x: Float32s) -> None:
    assert_is_the_twin(native.get_codec("bit16", level=level), x)


@levels
@encoder_inputs
@pytest.mark.parametrize("block_size", [32, 128])
def test_bit8_elements(level: str, x: Float32s, block_size: int) -> None:
    codec = native.get_codec("bit8", block_size, level=level)
    assert_is_the_twin(codec, x)
    # Led by 448, each block has scale 1, so that small elements are not lost beside large ones.
    assert_is_the_twin(codec, in_blocks_of_scale_one(x, block_size))


@levels
@blocks
def test_bit8_scales_over_the_whole_range(level: str, block_size: int) -> None:
    """Each block lies in a binade of its own, with the sweep's edge mantissas at its largest element."""
    sweep = np.abs(float32_sweep())
    largest = sweep[np.isfinite(sweep)][::29]
    below = np.random.default_rng(3).uniform(-1, 1, (largest.size, block_size)).astype(np.float32)
    x = below * largest[:, None]
    x[:, block_size // 2] = largest
    assert_is_the_twin(native.get_codec("bit8", block_size, level=level), x.ravel())


@levels
@blocks
def test_all_256_codes_decode_at_every_scale(level: str, block_size: int) -> None:
    codec = native.get_codec("bit8", block_size, level=level)
    per_scale = max(256, block_size)
    codes = np.resize(np.arange(256, dtype=np.uint8), 256 * per_scale)
    scales = np.arange(256, dtype=np.uint8).repeat(per_scale // block_size)
    run = np.concatenate([scales, codes])
    expected = twin_decode(codec, run, codes.size)
    values = decode(codec, run, codes.size)
    # Where scale and code are both NaN, which of the two gives the sign is left to the processor.
    both = (scales.repeat(block_size) == 255) & ((codes & 0x7F) == 0x7F)
    assert np.isnan(values[both]).all()
    assert_same_bits(values[~both], expected[~both])
    start = gradient_like(codes.size)
    assert_same_bits(decode_add(codec, run, start)[~both], added(start, expected)[~both])


@levels
def test_all_65536_halves_decode(level: str) -> None:
    codec = native.get_codec("bit16", level=level)
    run = np.arange(65536, dtype="<u2").view(np.uint8)
    expected = twin_decode(codec, run, 65536)
    assert_same_bits(decode(codec, run, 65536), expected)
    start = gradient_like(65536)
    assert_same_bits(decode_add(codec, run, start), added(start, expected))


@levels
@blocks
@pytest.mark.parametrize("count", COUNTS)
def test_bit8_runs_of_any_length(level: str, block_size: int, count: int) -> None:
    codec = native.get_codec("bit8", block_size, level=level)
    assert codec.encoded_bytes(count) == numpy_codec.encoded_bytes("bit8", count, block_size)
    assert_is_the_twin(codec, gradient_like(count))
    assert_is_the_twin(codec, with_specials(gradient_like(count)))


@levels
@pytest.mark.parametrize("count", COUNTS)
def test_bit16_runs_of_any_length(level: str, count: int) -> None:
    codec = native.get_codec("bit16", level=level)
    assert codec.encoded_bytes(count) == 2 * count
    assert_is_the_twin(codec, gradient_like(count))
    assert_is_the_twin(codec, with_specials(gradient_like(count)))


@levels
@codecs
@pytest.mark.parametrize("offset", [1, 2, 3, 7, 33])
def test_runs_and_tensors_at_odd_addresses(level: str, name: str, block_size: int, offset: int) -> None:
    codec = native.get_codec(name, block_size, level=level)
    x = placed(with_specials(gradient_like(1000)), 4 * offset)
    run, _ = encode(codec, x, offset=offset)
    assert_same_bits(run, twin_encode(codec, x)[0])
    expected = twin_decode(codec, run, x.size)
    assert_same_bits(decode(codec, run, x.size, offset=4 * offset), expected)
    start = gradient_like(x.size, seed=4)
    assert_same_bits(decode_add(codec, run, start, offset=4 * offset), added(start, expected))


@levels
@codecs
@pytest.mark.parametrize("prescale", PRESCALES)
def test_prescale(level: str, name: str, block_size: int, prescale: float) -> None:
    codec = native.get_codec(name, block_size, level=level)
    assert_is_the_twin(codec, with_specials(gradient_like(3000)), prescale)
    assert_is_the_twin(codec, random_patterns(30_000), prescale)


@levels
@codecs
@float_dtypes
def test_other_inputs_are_rounded_to_float32(level: str, name: str, block_size: int, dtype: str) -> None:
    codec = native.get_codec(name, block_size, level=level)
    if NUMPY_DTYPES[dtype].itemsize == 2:
        x = np.arange(65536, dtype=np.uint16).view(NUMPY_DTYPES[dtype])
    else:
        x = widened(float32_sweep(), dtype)
    assert_is_the_twin(codec, x)
    assert_is_the_twin(codec, x[:1001], prescale=1 / 3)
    if dtype == "float64":
        between = widened(float32_sweep()[::3], dtype)
        for factor in (1 + 2.0**-24, 1 + 2.0**-24 + 2.0**-50, 1 - 2.0**-25, 1e-300, 1e300):
            with np.errstate(over="ignore", invalid="ignore"):
                assert_is_the_twin(codec, between * factor)


@levels
@codecs
@float_dtypes
def test_other_outputs_are_rounded_from_float32(level: str, name: str, block_size: int, dtype: str) -> None:
    codec = native.get_codec(name, block_size, level=level)
    x = random_patterns(50_000) if name == "bit8" else all_16_bit_values(np.float16)
    run, _ = encode(codec, x)
    values = twin_decode(codec, run, x.size)
    with np.errstate(over="ignore"):
        expected = values.astype(NUMPY_DTYPES[dtype])
    decoded = decode(codec, run, x.size, dtype)
    number = ~np.isnan(values)
    assert_same_bits(decoded[number], expected[number])
    assert np.isnan(decoded[~number].astype(np.float32)).all()
    assert np.array_equal(np.signbit(decoded.astype(np.float32)), np.signbit(values))


@levels
@codecs
def test_adding_decoded_values_keeps_nan_and_infinity(level: str, name: str, block_size: int) -> None:
    codec = native.get_codec(name, block_size, level=level)
    run, _ = encode(codec, np.float32([1.0, np.nan, 1.0, np.inf]))
    sums = decode_add(codec, run, np.float32([np.nan, 1.0, np.inf, 1.0]))
    assert not np.isfinite(sums).any()


@levels
def test_saturation_is_counted_over_long_runs(level: str) -> None:
    x = np.tile(np.float32([1e6, -1e6, np.inf, 65519, np.nan, 65520]), 100_000)
    _, saturated = encode(native.get_codec("bit16", level=level), x)
    assert saturated == 300_000
    assert encode(native.get_codec("bit8", level=level), x)[1] == 0


def test_codecs_say_what_they_are() -> None:
    bit8, bit16 = native.get_codec("bit8"), native.get_codec("bit16")
    assert (bit8.name, bit8.block_size, bit8.level) == ("bit8/128", 128, native.simd_level())
    assert (bit16.name, bit16.block_size) == ("bit16", 1)
    assert native.get_codec("bit8", 32).name == "bit8/32"
    assert [native.get_codec("bit8", level=level).level for level in LEVELS] == LEVELS
    assert {"scalar", "baseline", native.simd_level()} <= set(LEVELS)


@pytest.mark.parametrize(("name", "block_size", "level", "said"), [
    ("bit4", 0, "", "bit4"), ("", 0, "", "bit8"), ("bit8/128", 0, "", "bit8/128"), ("bit8", 16, "", "16"),
    ("bit8", 100, "", "100"), ("bit8", 2048, "", "2048"), ("bit8", -128, "", "-128"),
    ("bit16", 128, "", "128"), ("bit8", 0, "avx9", "avx9"),
])
def test_codecs_that_do_not_exist_are_refused(name: str, block_size: int, level: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        native.get_codec(name, block_size, level=level)


@codecs
@pytest.mark.parametrize("dtype", [0, 1, 2, 3, 4, 8, 10, -1])
def test_other_dtypes_are_refused_and_nothing_is_written(name: str, block_size: int, dtype: int) -> None:
    codec = native.get_codec(name, block_size)
    x, output = np.zeros(64, dtype=np.float64), Guarded(0)
    with pytest.raises(ValueError, match=str(dtype)):
        codec.encode(x.ctypes.data, dtype, 64, output.address)
    with pytest.raises(ValueError, match=str(dtype)):
        codec.decode(x.ctypes.data, 64, output.address, dtype)
    output.check()


@codecs
def test_negative_counts_are_refused(name: str, block_size: int) -> None:
    codec = native.get_codec(name, block_size)
    x = np.zeros(64, dtype=np.float32).ctypes.data
    for use in (
        lambda: codec.encoded_bytes(-1),
        lambda: codec.encode(x, DTYPES["float32"], -1, x),
        lambda: codec.decode(x, -1, x, DTYPES["float32"]),
        lambda: codec.decode_add(x, -1, x),
    ):
        with pytest.raises(ValueError, match="-1"):
            use()
