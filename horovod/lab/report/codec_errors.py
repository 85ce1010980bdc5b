"""Errors of a report's codecs on normally distributed numbers, by their NumPy twin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from horovod.common.numpy_codec import codec_of_text, nmse

__all__ = ["ELEMENTS", "CodecError", "codec_errors"]

ELEMENTS = 2**17


@dataclass(frozen=True)
class CodecError:
    """One encoding of numbers of N(0, 1)."""

    compression: str
    nmse: float  # |restored - x|^2 / |x|^2
    relative: NDArray[np.float64]  # |restored - x| / |x| of each element


def codec_errors(compressions: Iterable[str]) -> list[CodecError]:
    """The errors of compressions that are codecs. Skips none, casts, top-k and PowerSGD."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS, dtype=np.float32)
    found = []
    for compression in dict.fromkeys(compressions):
        codec = codec_of_text(compression)
        if codec is None:
            continue
        restored = codec.decode(codec.encode(x), x.size).astype(np.float64)
        found.append(CodecError(compression, nmse(restored, x), np.abs(restored - x) / np.abs(x)))
    return found
