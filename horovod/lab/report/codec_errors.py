"""What the codecs of a report's compressions lose of normally distributed numbers, by their NumPy twin."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from horovod.common.numpy_codec import NamedCodec, nmse

__all__ = ["ELEMENTS", "CodecError", "codec_errors", "codec_of"]

ELEMENTS = 2**17
BLOCK_SIZE = 128


@dataclass(frozen=True)
class CodecError:
    """One encoding of numbers of N(0, 1)."""

    compression: str
    nmse: float  # |restored - x|^2 / |x|^2
    relative: NDArray[np.float64]  # |restored - x| / |x| of each element


def codec_errors(compressions: Iterable[str]) -> list[CodecError]:
    """Of those compressions that are codecs: none, casts, top-k and PowerSGD are left out."""
    x = np.random.default_rng(0).standard_normal(ELEMENTS, dtype=np.float32)
    found = []
    for compression in dict.fromkeys(compressions):
        codec = codec_of(compression)
        if codec is None:
            continue
        restored = codec.decode(codec.encode(x), x.size).astype(np.float64)
        found.append(CodecError(compression, nmse(restored, x), np.abs(restored - x) / np.abs(x)))
    return found


def codec_of(compression: str) -> NamedCodec | None:
    """The codec of a compression as HOROVOD_COMPRESSION takes it; None if it is no codec.

    Options that do not change what one encoding loses, such as error feedback, are passed over.
    """
    name, _, rest = compression.partition(":")
    if name not in ("bit16", "bit8", "int8", "int4"):
        return None
    options = dict(pair.strip().split("=", 1) for pair in rest.split(",") if "=" in pair)
    return NamedCodec(
        name,
        int(options.get("block_size", BLOCK_SIZE)) if name != "bit16" else 1,
        variant=options.get("format", "e4m3"),
        stochastic=options.get("rounding") == "stochastic",
        rotated=options.get("rotation") == "hadamard",
        lloyd=options.get("levels") == "lloyd",
        seed=int(options.get("seed", 0)),
    )
