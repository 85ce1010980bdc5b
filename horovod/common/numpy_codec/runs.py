"""What formats with blocks have in common: blocks, largest magnitudes, checks; and the measure of error."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec.minifloat import FLOAT32_INFINITY, Float32s

__all__ = ["BLOCK_SIZES", "encoded_bytes", "nmse"]

BLOCK_SIZES = (32, 64, 128, 256, 512, 1024)
SCALE_BYTES = {"bit8": 1, "int8": 4, "int4": 4}
CODES_PER_BYTE = {"bit8": 1, "int8": 1, "int4": 2}

Bytes = NDArray[np.uint8]


def encoded_bytes(name: str, count: int, block_size: int = 128) -> int:
    """Length of a run of ``count`` elements: scales of ceil(count / block_size) blocks, then the codes."""
    if count < 0:
        raise ValueError(f"a run cannot hold {count} elements; give a count of 0 or more")
    if name == "bit16":
        return 2 * count
    if name not in SCALE_BYTES:
        raise ValueError(f"no codec is called {name!r}; there are 'bit16', 'bit8', 'int8' and 'int4'")
    check_block_size(block_size)
    return -(-count // block_size) * SCALE_BYTES[name] + -(-count // CODES_PER_BYTE[name])


def largest_magnitudes(x: Float32s, block_size: int, finite_only: bool) -> NDArray[np.uint32]:
    """The largest magnitude of each block as float32 bits: positive floats order like their bits.

    Elements that are not finite count as 0, or, without `finite_only`, as themselves: beyond every finite
    one.
    """
    blocks = -(-x.size // block_size)
    bits = np.zeros(blocks * block_size, dtype=np.uint32)
    bits[: x.size] = x.view(np.uint32) & 0x7FFFFFFF
    if finite_only:
        bits[bits >= FLOAT32_INFINITY] = 0
    return np.asarray(bits.reshape(blocks, block_size).max(axis=1, initial=0))


def per_element(of_blocks: NDArray[np.float32], block_size: int, count: int) -> Float32s:
    """A value of each block, repeated for each of its elements."""
    return of_blocks.repeat(block_size)[:count]


def split_run(run: Bytes, name: str, count: int, block_size: int) -> tuple[Bytes, Bytes]:
    """The bytes of a run's scales, and those of its codes; ValueError unless the run has the right length."""
    check_run(run, encoded_bytes(name, count, block_size))
    codes = -(-count // CODES_PER_BYTE[name])
    return run[: run.size - codes], run[run.size - codes :]


def nmse(decoded: ArrayLike, original: ArrayLike) -> float:
    """Normalised mean square error |decoded - original|^2 / |original|^2 in float64; 0 if nothing differs."""
    reference = np.asarray(original, dtype=np.float64)
    error = float(np.sum((np.asarray(decoded, dtype=np.float64) - reference) ** 2))
    return error / float(np.sum(reference**2)) if error != 0 else 0.0


def check_block_size(block_size: int) -> None:
    """ValueError unless a block may have this many elements."""
    if block_size not in BLOCK_SIZES:
        raise ValueError(f"a block has {', '.join(map(str, BLOCK_SIZES))} elements, not {block_size}")


def check_run(run: Bytes, expected: int) -> None:
    """ValueError unless the run is bytes and has the length its count asks for."""
    if run.dtype != np.uint8 or run.ndim != 1 or run.size != expected:
        raise ValueError(f"expected a run of {expected} bytes (uint8), got {run.dtype} of shape {run.shape}")
