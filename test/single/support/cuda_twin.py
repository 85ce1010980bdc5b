"""The slow CPU twin of a GPU's buckets: piece by piece, with the CPU's codecs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from device_kernels import Asked, Tensor, runs_of
from native_codec import Bytes, Float32s, as_floats, decode, encode
from numpy.typing import NDArray

FLOAT_MAX = np.finfo(np.float32).max


@dataclass(frozen=True)
class Encoded:
    message: Bytes
    residuals: list[Float32s]  # of the tensors that have one
    saturated: int


def encoded_message(codec: Any, tensors: Sequence[Tensor], prescale: float = 1.0) -> Encoded:
    """Encode the tensors as Bucket::pack() does."""
    runs: list[Bytes] = []
    residuals: list[Float32s] = []
    saturated = 0
    for tensor in tensors:
        with np.errstate(all="ignore"):
            wanted = as_floats(tensor.values) * np.float32(prescale)
            wanted = wanted if tensor.residual is None else wanted + tensor.residual
        lost = [np.zeros(0, np.float32)]
        for begin, count in runs_of(wanted.size):
            part = wanted[begin : begin + count]
            run, beyond = encode(codec, part, key=tensor.key, first=tensor.first + begin)
            runs.append(run)
            saturated += beyond
            with np.errstate(all="ignore"):
                difference = part - decode(codec, run, count)
            lost.append(np.where(np.abs(difference) <= FLOAT_MAX, difference, np.float32(0)))
        if tensor.residual is not None:
            residuals.append(np.concatenate(lost))
    return Encoded(np.concatenate([np.zeros(0, np.uint8), *runs]), residuals, saturated)


def decoded_message(
    codec: Any, tensors: Sequence[Tensor], message: Bytes, dtype: str = ""
) -> list[NDArray[Any]]:
    """The decoded tensors of a message, in their own dtype or another."""
    results: list[NDArray[Any]] = []
    at = 0
    for tensor in tensors:
        kind = dtype or tensor.values.dtype.name
        parts: list[NDArray[Any]] = [np.zeros(0, tensor.values.dtype if not dtype else np.dtype(dtype))]
        for _, count in runs_of(tensor.values.size):
            nbytes = codec.encoded_bytes(count)
            parts.append(decode(codec, message[at : at + nbytes].copy(), count, kind))
            at += nbytes
        results.append(np.concatenate(parts))
    return results


def summed(values: Sequence[Sequence[Float32s]], asked: Asked) -> list[Float32s]:
    """The scaled float32 sum of each tensor, added in the order of contributions."""
    results = []
    with np.errstate(all="ignore"):
        for parts in zip(*values, strict=True):
            total = parts[0].copy()
            for part in parts[1:]:
                total = total + part
            results.append(total * np.float32(asked.factor / asked.divisor))
    return results


def prescaled(tensors: Sequence[Tensor], prescale: float) -> list[Float32s]:
    with np.errstate(all="ignore"):
        return [as_floats(tensor.values) * np.float32(prescale) for tensor in tensors]
