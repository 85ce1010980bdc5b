"""Calls of the native codecs on NumPy arrays between guards, and the comparison with the NumPy twin."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from codec_cases import DTYPES, assert_same_bits, gradient_like
from numpy.typing import NDArray

from horovod import _native as native
from horovod.common.numpy_codec import bit16_saturated, named_codec

Bytes = NDArray[np.uint8]
Float32s = NDArray[np.float32]

GUARD = 64  # bytes before and after every output, which must not change
GUARD_BYTE = 0xA5
LEVELS = native.simd_levels()
NUMPY_DTYPES = {name: np.dtype(getattr(ml_dtypes, name, None) or name) for name in DTYPES}

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


def encode(
    codec: Any, x: NDArray[Any], prescale: float = 1.0, offset: int = 0, key: int = 0, first: int = 0
) -> tuple[Bytes, int]:
    """The native encoding, at `offset` bytes past an aligned address, and its number of saturations."""
    run = Guarded(codec.encoded_bytes(x.size), offset)
    saturated = codec.encode(x.ctypes.data, DTYPES[x.dtype.name], x.size, run.address, prescale, key, first)
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


def decode_two(
    codec: Any, first: Bytes, second: Bytes, count: int, factor: float, offset: int = 0
) -> Float32s:
    results = Guarded(4 * count, offset)
    codec.decode_two(first.ctypes.data, second.ctypes.data, count, factor, results.address)
    results.check()
    return results.bytes.view(np.float32)


def widened(x: Float32s, dtype: str) -> NDArray[Any]:
    with np.errstate(invalid="ignore"):  # signalling NaN become quiet
        return x.astype(NUMPY_DTYPES[dtype])


def added(start: Float32s, values: Float32s) -> Float32s:
    with np.errstate(over="ignore", invalid="ignore"):
        return start + values


def assert_is_the_twin(
    name: str, x: NDArray[Any], prescale: float = 1.0, key: int = 0, first: int = 0
) -> None:
    """Assert that encoding and each way of decoding give the NumPy twin's bytes at every instruction set."""
    twin = named_codec(name)
    floats = as_floats(x)
    expected = twin.encode(floats, prescale, key, first)
    saturated = bit16_saturated(floats, prescale) if name == "bit16" else 0
    values = twin.decode(expected, x.size)
    start = gradient_like(x.size, seed=9)
    other = twin.encode(start, 1.0, key, first)
    factor = np.float32(1 / 3)
    with np.errstate(over="ignore", invalid="ignore"):
        averages = (twin.decode(other, x.size) + values) * factor
    for level in LEVELS:
        codec = native.codec_named(name, level=level)
        run, counted = encode(codec, x, prescale, key=key, first=first)
        assert_same_bits(run, expected, f"{name} encoded at {level}: ")
        assert counted == saturated
        assert_same_bits(decode(codec, run, x.size), values, f"{name} decoded at {level}: ")
        sums = decode_add(codec, run, start)
        assert_same_bits(sums, added(start, values), f"{name} decoded and added at {level}: ")
        results = decode_two(codec, other, run, x.size, float(factor))
        assert_same_bits(results, averages, f"{name}, two decoded at {level}: ")


def as_floats(x: NDArray[Any]) -> Float32s:
    """Convert to float32 as the core does."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(x, dtype=np.float32)
