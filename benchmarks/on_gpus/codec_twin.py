"""The bytes that kernels must produce, computed by the CPU's codec.

A message consists of pieces, one for each tensor, and a piece consists of runs of at most 4096 elements
(docs/wire_format.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from horovod import _native
from on_gpus.device import Bytes

RUN = 4096
FLOAT32 = 6
DTYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "float32": (FLOAT32, np.dtype(np.float32)),
    "float16": (5, np.dtype(np.float16)),
    "bfloat16": (9, np.dtype(ml_dtypes.bfloat16)),
}

Values = np.ndarray[Any, Any]


class WrongBytes(Exception):
    """A kernel and the CPU's codec do not agree."""


def runs(codec: _native.Codec, counts: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tensor, first element, elements, first byte in the message) of each run."""
    at = 0
    for tensor, count in enumerate(counts):
        for first in range(0, count, RUN):
            elements = min(RUN, count - first)
            yield tensor, first, elements, at
            at += codec.encoded_bytes(elements)


def encode(codec: _native.Codec, dtype: str, tensors: list[Values], keys: list[int], nbytes: int) -> Bytes:
    number, numpy_dtype = DTYPES[dtype]
    message = np.zeros(nbytes, np.uint8)
    for tensor, first, elements, at in runs(codec, [values.size for values in tensors]):
        source = tensors[tensor].ctypes.data + first * numpy_dtype.itemsize
        target = message.ctypes.data + at
        codec.encode(source, number, elements, target, key=keys[tensor], first=first)
    return message


def decode(codec: _native.Codec, dtype: str, message: Bytes, counts: list[int]) -> list[Values]:
    number, numpy_dtype = DTYPES[dtype]
    tensors = [np.zeros(count, numpy_dtype) for count in counts]
    for tensor, first, elements, at in runs(codec, counts):
        target = tensors[tensor].ctypes.data + first * numpy_dtype.itemsize
        codec.decode(message.ctypes.data + at, elements, target, number)
    return tensors


def reduce(codec: _native.Codec, messages: list[Bytes], counts: list[int]) -> list[Values]:
    """Sum in float32, in the messages' order."""
    sums = decode(codec, "float32", messages[0], counts)
    for message in messages[1:]:
        for tensor, first, elements, at in runs(codec, counts):
            accumulator = sums[tensor].ctypes.data + first * 4
            codec.decode_add(message.ctypes.data + at, elements, accumulator)
    return sums


def compare(what: str, got: Bytes, wanted: Bytes) -> None:
    differing = np.flatnonzero(got != wanted)
    if differing.size:
        at = int(differing[0])
        raise WrongBytes(
            f"{what}: {differing.size} of {wanted.size} bytes differ from the CPU codec's, "
            f"the first at {at}: {got[at]} instead of {wanted[at]}"
        )
