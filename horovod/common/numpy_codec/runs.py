"""Functions that formats share: blocks, largest magnitudes, random numbers, checks; and the measure of error.

The random numbers of stochastic rounding and rotation are the twin of ``horovod/native/codec/random_bits.h``:
number n of a stream is a function of n alone. A codec's seed and a key, both 64 bits, name a stream.
SplitMix64's output function (Steele, Lea, Flood 2014) makes its state; two rounds of multiplication and
shifts mix a number from the state and n (the first is Wellons' "lowbias32").
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common import errors
from horovod.common.numpy_codec.minifloat import FLOAT32_INFINITY, Float32s

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
MASK64 = (1 << 64) - 1
ROTATION_KEY = int.from_bytes(b"ROTATION", "big")

Bytes = NDArray[np.uint8]


class Layout(NamedTuple):
    """A format's sizes: bytes of each block's scale (0: no blocks), bits of each element's code."""

    scale_bytes: int
    bits: int

    def scales_bytes(self, count: int, block_size: int) -> int:
        """Bytes of the scales of ``count`` elements, which come before the codes."""
        return -(-count // block_size) * self.scale_bytes

    def run_bytes(self, count: int, block_size: int) -> int:
        """Length of a run of ``count`` elements."""
        return self.scales_bytes(count, block_size) + -(-count * self.bits // 8)


def largest_magnitudes(x: Float32s, block_size: int, finite_only: bool) -> NDArray[np.uint32]:
    """The largest magnitude of each block as float32 bits: positive floats order like their bits.

    Non-finite elements count as 0, or, without `finite_only`, as larger than any finite one.
    """
    blocks = -(-x.size // block_size)
    bits = np.zeros(blocks * block_size, dtype=np.uint32)
    bits[: x.size] = x.view(np.uint32) & 0x7FFFFFFF
    if finite_only:
        bits[bits >= FLOAT32_INFINITY] = 0
    return np.asarray(bits.reshape(blocks, block_size).max(axis=1, initial=0))


def per_element(of_blocks: NDArray[Any], block_size: int, count: int) -> NDArray[Any]:
    """Each block's value, repeated for each of its elements."""
    return of_blocks.repeat(block_size)[:count]


def split_run(run: Bytes, layout: Layout, count: int, block_size: int) -> tuple[Bytes, Bytes]:
    """The bytes of a run's scales, and of its codes. ValueError unless the run has the right length."""
    check_count(count)
    check_block_size(block_size)
    check_run(run, layout.run_bytes(count, block_size))
    return np.split(run, [layout.scales_bytes(count, block_size)])  # type: ignore[return-value]


def packed(codes: NDArray[np.int64], bits: int) -> Bytes:
    """Codes of so many bits side by side, the first in the lowest bits; zeros fill the last byte."""
    each = np.unpackbits(codes.astype(np.uint8)[:, None], axis=1, count=bits, bitorder="little")
    return np.packbits(each, bitorder="little")


def unpacked(stream: Bytes, bits: int, count: int) -> Bytes:
    """The ``count`` codes in a stream of ``packed``, a byte each."""
    each = np.unpackbits(stream, count=bits * count, bitorder="little").reshape(count, bits)
    return np.packbits(each, axis=1, bitorder="little")[:, 0]


def nmse(decoded: ArrayLike, original: ArrayLike) -> float:
    """Normalised mean square error |decoded - original|^2 / |original|^2 in float64; 0 if they are equal."""
    reference = np.asarray(original, dtype=np.float64)
    error = float(np.sum((np.asarray(decoded, dtype=np.float64) - reference) ** 2))
    return error / float(np.sum(reference**2)) if error != 0 else 0.0


def check_count(count: int) -> None:
    """ValueError for a negative number of elements."""
    if count < 0:
        raise errors.negative_count(count=count)


def check_block_size(block_size: int) -> None:
    """ValueError for a block size that formats do not have."""
    if block_size not in BLOCK_SIZES:
        raise errors.wrong_block_size(choices=list(BLOCK_SIZES), block_size=block_size)


def check_run(run: Bytes, expected: int) -> None:
    """ValueError unless the run consists of ``expected`` bytes."""
    if run.dtype != np.uint8 or run.ndim != 1 or run.size != expected:
        raise errors.wrong_run(expected=expected, dtype=str(run.dtype), shape=tuple(run.shape))


def scramble(z: int) -> int:
    """SplitMix64's output function of a 64-bit number."""
    z = (z + 0x9E3779B97F4A7C15) & MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK64
    return z ^ (z >> 31)


def mixed(stream: int, low: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """32 random bits for each lower half of an index, under the stream's 64 bits of state."""
    h = low ^ np.uint32(stream & 0xFFFFFFFF)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
    h = (h ^ (h >> np.uint32(16)) ^ np.uint32(stream >> 32)) * np.uint32(0x9E3779B1)
    return np.asarray(h ^ (h >> np.uint32(15)))


def random_numbers(seed: int, key: int, first: int, count: int) -> NDArray[np.uint32]:
    """Numbers ``first`` to ``first + count - 1`` of the stream (seed, key), as uint32."""
    n = np.uint64(first) + np.arange(count, dtype=np.uint64)
    low, high = n.astype(np.uint32), n >> np.uint64(32)
    numbers = np.empty(count, dtype=np.uint32)
    for upper_half in np.unique(high):
        stream = scramble(scramble(scramble(seed) ^ key) ^ int(upper_half))
        numbers[high == upper_half] = mixed(stream, low[high == upper_half])
    return numbers


def rotation_signs(seed: int, block_size: int) -> NDArray[np.uint32]:
    """The float32 sign bit, set or not, by which element i of every rotated block is multiplied."""
    return np.asarray(random_numbers(seed, ROTATION_KEY, 0, block_size) & np.uint32(1 << 31))
