"""The random numbers of stochastic rounding and rotation: number n of a stream is a function of n alone.

The twin of ``horovod/native/codec/random_bits.h``. A codec's seed and a key, both 64 bits, name a stream.
SplitMix64's output function (Steele, Lea, Flood 2014) makes its state; two rounds of multiplication and
shifts mix a number from the state and n (the first is Wellons' "lowbias32").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["random_numbers", "rotation_signs"]

MASK64 = (1 << 64) - 1
ROTATION_KEY = int.from_bytes(b"ROTATION", "big")


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
