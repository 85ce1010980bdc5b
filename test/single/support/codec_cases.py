"""Inputs for the codec tests: float32 patterns at the edges of rounding, ranges and blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from horovod import _native as native
from horovod.common.numpy_codec import MinifloatFormat, decode_minifloat

BLOCK_SIZES = (32, 64, 128, 256, 1024)
COUNTS = (0, 1, 31, 32, 33, 127, 128, 129, 1000, 4096 + 5)
DTYPES = {"float16": 5, "float32": 6, "float64": 7, "bfloat16": 9}
FORMATS = native.codec_formats()  # the rows of horovod/native/codec/format_list.h


def names_of(row: Any) -> list[str]:
    """The codecs that tests use of a row: two block sizes, both roundings, with and without seeds."""
    name = row.format
    if not row.scale_bytes:
        return [name]
    if row.is_rotated:
        options = {"rotation": "hadamard", "levels": "lloyd" if row.has_lloyd_levels else "uniform"}
        rounding = {} if row.has_lloyd_levels else {"rounding": "stochastic"}
        cases: list[tuple[int, dict[str, Any]]] = [(128, rounding), (64, {"seed": 2**64 - 1})]
    else:
        options = {"variant": row.variant}
        cases = [(128, {}), (32, {"rounding": "stochastic", "seed": 9})]
    return [native.get_codec(name, block, **options, **more).name for block, more in cases]


# Every format and option; tests of all codecs use this list.
NAMES = tuple(name for row in FORMATS for name in names_of(row))
# Names of rows without rotation, with a placeholder for the block size.
PLAIN_NAMES = tuple(
    native.get_codec(row.format, 32, variant=row.variant).name.replace("/32", "/{}", 1)
    for row in FORMATS
    if row.scale_bytes and not row.is_rotated
)
PRESCALES = (1.0, 0.5, 1 / 3, 3.0, 0.1, -1.0, 1e-30, 1e30)


def edge_mantissas() -> list[int]:
    """float32 mantissas at and next to the points at which rounding to few bits changes its result.

    A target format keeps a prefix of the mantissa, shorter for subnormals, so ties and carries can occur
    at every bit: short prefixes at every position, prefixes of all ones, and e4m3's own
    grid with its midpoints.
    """
    centres = [prefix << place for place in range(23) for prefix in (0, 1, 2, 3, 5)]
    centres += [((1 << ones) - 1) << (23 - ones) for ones in range(24)]
    centres += [step << 19 for step in range(16)]
    centres += [step << 12 for step in (3, 0x155, 0x2AB, 0x3FF, 0x7FD, 0x7FE, 0x7FF)]
    nearby = {centre + offset for centre in centres for offset in (-1, 0, 1)}
    return sorted(mantissa for mantissa in nearby if 0 <= mantissa < 1 << 23)


def float32_sweep() -> NDArray[np.float32]:
    """Every exponent field 0..255 with every edge mantissa and both signs, including infinities and NaN."""
    mantissas = np.array(edge_mantissas(), dtype=np.uint32)
    exponents = np.arange(256, dtype=np.uint32) << 23
    magnitudes = (exponents[:, None] | mantissas[None, :]).ravel()
    return np.concatenate([magnitudes, magnitudes | np.uint32(1 << 31)]).view(np.float32)


def half_boundaries() -> NDArray[np.float32]:
    """All finite float16 values and their midpoints, each also one float32 step up and down."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    return with_neighbours(np.concatenate([halves, (halves[1:] + halves[:-1]) / 2, np.float32([65520])]))


def minifloat_boundaries(fmt: MinifloatFormat) -> NDArray[np.float32]:
    """All finite values of an 8-bit format and their midpoints, each also one float32 step up and down."""
    values = decode_minifloat(np.arange(fmt.max_code + 1), fmt)
    return with_neighbours(np.concatenate([values, (values[1:] + values[:-1]) / 2]))


def with_neighbours(x: NDArray[np.float32]) -> NDArray[np.float32]:
    up, down = np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf))
    return np.concatenate([x, up, down, -x, -up, -down])


def all_16_bit_values(dtype: Any) -> NDArray[np.float32]:
    """The float32 values of all 65,536 patterns of a 16-bit float type."""
    return np.arange(65536, dtype=np.uint16).view(dtype).astype(np.float32)


def in_blocks_of_scale_one(
    x: NDArray[np.float32], block_size: int, largest: float = 448.0
) -> NDArray[np.float32]:
    """Values up to `largest`, with blocks that begin with `largest`: bit8's scale is 1 for its maximum."""
    x = x[np.abs(x) <= largest]
    per_block = block_size - 1
    rows = np.zeros((-(-x.size // per_block), block_size), dtype=np.float32)
    padded = np.concatenate([x, np.zeros(rows.shape[0] * per_block - x.size, dtype=np.float32)])
    rows[:, 0] = largest
    rows[:, 1:] = padded.reshape(-1, per_block)
    return rows.ravel()


def gradient_like(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Normally distributed values whose magnitude varies by section, with zeros, -0 and denormals."""
    random = np.random.default_rng(seed)
    x = random.standard_normal(count) * 10.0 ** random.integers(-12, 5, -(-count // 50)).repeat(50)[:count]
    x[::17] = 0.0
    x[5::29] = -0.0
    x[11::43] = 1e-41
    return x.astype(np.float32)


def with_specials(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """A copy with some non-finite and extreme values."""
    positive = np.array([np.nan, np.inf, 3.4028235e38, 1e-45], np.float32)
    specials = np.concatenate([positive, -positive])
    copy = x.copy()
    places = np.arange(3, copy.size, 37)
    copy[places] = np.resize(specials, places.size)
    return copy


def random_patterns(count: int, seed: int = 0) -> NDArray[np.float32]:
    """Uniformly random float32 bit patterns, NaN and infinities included."""
    return np.random.default_rng(seed).integers(0, 1 << 32, count, dtype=np.uint32).view(np.float32)


def bits(x: NDArray[Any]) -> NDArray[Any]:
    """The bit patterns of an array, for comparisons that distinguish -0 from 0 and NaNs from each other."""
    return x.view(f"u{x.dtype.itemsize}")


def assert_same_bits(actual: NDArray[Any], expected: NDArray[Any], what: str = "") -> None:
    """Assert equal dtype, shape and bits; the error names the first different element."""
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    wrong = np.flatnonzero(bits(actual) != bits(expected))
    if wrong.size:
        i = wrong[0]
        raise AssertionError(f"{what}{wrong.size} of {actual.size} differ, first [{i}]: {actual[i]!r} = "
                             f"{bits(actual)[i]:#x}, expected {expected[i]!r} = {bits(expected)[i]:#x}")
