"""Whole runs of ``float6``: minifloats of 6 bits under one power-of-two scale per block.

The twin of ``Float6Blocks`` in ``horovod/native/codec/minifloat.h``. The element is E3M2 of OCP Microscaling
Formats (MX) 1.0, which has neither infinity nor NaN: a scale byte of 255 marks a block that had one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from horovod.common.numpy_codec.bit_runs import SCALE_BIAS, SCALE_NAN, block_scales
from horovod.common.numpy_codec.minifloat import (
    FLOAT32_INFINITY,
    Float32s,
    MinifloatFormat,
    as_float32,
    decode_minifloat,
    encode_minifloat,
    multiplied,
)
from horovod.common.numpy_codec.runs import (
    Bytes,
    Layout,
    check_block_size,
    largest_magnitudes,
    packed,
    split_run,
    unpacked,
)

__all__ = ["E3M2", "FLOAT6", "float6_decode", "float6_encode"]

# Up to 1.75 * 2^4 = 28, with every pattern a number; NaN is never encoded.
E3M2 = MinifloatFormat("e3m2", exponent_bits=3, mantissa_bits=2, bias=3,
                       max_code=0x1F, nan_code=0x1F, has_infinity=False)
FLOAT6 = Layout(scale_bytes=1, bits=6)


def float6_encode(
    x: ArrayLike, block_size: int = 128, prescale: float = 1.0, random: NDArray[np.uint32] | None = None
) -> Bytes:
    """The run of ``x * prescale``: a scale byte per block, then four codes in three bytes."""
    values = multiplied(as_float32(x).ravel(), prescale)
    check_block_size(block_size)
    is_spoilt = largest_magnitudes(values, block_size, finite_only=False) >= FLOAT32_INFINITY
    scales = np.where(is_spoilt, SCALE_NAN, block_scales(values, block_size, E3M2)).astype(np.uint8)
    of_element = scales.repeat(block_size)[: values.size].astype(np.int64)
    finite = np.where(of_element == SCALE_NAN, np.float32(0), values)
    codes = encode_minifloat(finite, E3M2, of_element - SCALE_BIAS, random)
    return np.concatenate([scales, packed(np.where(of_element == SCALE_NAN, 0, codes), FLOAT6.bits)])


def float6_decode(run: Bytes, count: int, block_size: int = 128) -> Float32s:
    """The ``count`` values of a float6 run; all of a block with the scale byte 255 are NaN."""
    scales, stream = split_run(run, FLOAT6, count, block_size)
    scale = scales.repeat(block_size)[:count].astype(np.int64)
    values = decode_minifloat(unpacked(stream, FLOAT6.bits, count), E3M2, scale - SCALE_BIAS)
    values[scale == SCALE_NAN] = np.nan
    return values
