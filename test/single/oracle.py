"""What collectives must give, in NumPy: the slow twin of the native routes."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from ml_dtypes import bfloat16
from numpy.typing import NDArray
from ranks import AVERAGE, MAX, MIN, PRODUCT, SUM

from horovod.common import numpy_codec

Array = NDArray[Any]


def sum_type(dtype: Any) -> Any:
    """The type sums are made in: float32 for the 16-bit floats, otherwise the dtype itself."""
    return np.float32 if dtype in (np.dtype(np.float16), np.dtype(bfloat16)) else dtype


def scaled(x: Array, factor: float, divisor: float = 1.0) -> Array:
    """Floats are multiplied in their own type, integers in float64 and truncated."""
    if factor == 1.0 and divisor == 1.0:
        return x
    if np.issubdtype(x.dtype, np.floating):
        return x * x.dtype.type(factor / divisor)
    return (x.astype(np.float64) * factor / divisor).astype(x.dtype)


def combine(a: Array, b: Array, op: int) -> Array:
    if op in (SUM, AVERAGE):
        return a + b
    return {MIN: np.minimum, MAX: np.maximum, PRODUCT: np.multiply}[op](a, b)


def allreduce(xs: list[Array], op: int = SUM, prescale: float = 1.0, postscale: float = 1.0) -> Array:
    """The exact routes: sums in rank order, rounded once."""
    with np.errstate(over="ignore"):
        total = reduce(
            lambda a, b: combine(a, b, op), (scaled(x.astype(sum_type(x.dtype)), prescale) for x in xs)
        )
        divisor = len(xs) if op == AVERAGE else 1.0
        return scaled(total, postscale, divisor).astype(xs[0].dtype)


def encoded(codec: str, x: Array, block: int, prescale: float = 1.0) -> Array:
    if codec == "bit16":
        return numpy_codec.bit16_encode(x, prescale)
    return numpy_codec.bit8_encode(x, block, prescale)


def decoded(codec: str, run: Array, count: int, block: int) -> Array:
    if codec == "bit16":
        return numpy_codec.bit16_decode(run, count)
    return numpy_codec.bit8_decode(run, count, block)


def compressed_allreduce(
    xs: list[Array],
    codec: str,
    block: int = 128,
    op: int = SUM,
    prescale: float = 1.0,
    postscale: float = 1.0,
) -> Array:
    """Contributions quantised, float32 (float64) sums in rank order; for 3+ ranks the result too."""
    dtype, count = xs[0].dtype, xs[0].size
    wide = np.float64 if dtype == np.float64 else np.float32
    parts = [
        decoded(codec, encoded(codec, x.astype(np.float32).ravel(), block, prescale), count, block)
        for x in xs
    ]
    total = reduce(lambda a, b: a + b, (part.astype(wide) for part in parts))
    total = scaled(total, postscale, len(xs) if op == AVERAGE else 1.0)
    if len(xs) > 2:
        total = decoded(codec, encoded(codec, total.astype(np.float32), block), count, block)
    return total.astype(dtype).reshape(xs[0].shape)
