"""Gradient compression: the interface of compressors, the package's compressors, and their selection."""

from __future__ import annotations

import warnings
from typing import Any

from horovod.torch.compression.casts import BF16Compressor, FP16Compressor, NoneCompressor
from horovod.torch.compression.codecs import (
    Bit8Compressor,
    Bit16Compressor,
    CodecCompressor,
    Int4Compressor,
    Int8Compressor,
)
from horovod.torch.compression.configured import ConfiguredCompressor, compressor_name, short_name
from horovod.torch.compression.contract import Compressor, CompressorLike, Rounds, State
from horovod.torch.compression.powersgd import PowerSGDCompressor
from horovod.torch.compression.registry import Compression
from horovod.torch.compression.resolve import around_autograd, codec_for, of_one_call, resolved
from horovod.torch.compression.rules import UNSET, Rules
from horovod.torch.compression.topk import TopKCompressor

__all__ = [
    "UNSET", "BF16Compressor", "Bit8Compressor", "Bit16Compressor", "CodecCompressor", "Compression",
    "Compressor", "CompressorLike", "ConfiguredCompressor", "FP16Compressor", "Int4Compressor",
    "Int8Compressor", "NoneCompressor", "PowerSGDCompressor", "Rounds", "Rules", "State", "TopKCompressor",
    "around_autograd", "codec_for", "compressor_name", "of_one_call", "resolved", "short_name",
]


def __getattr__(name: str) -> Any:
    if name == "UNSAID":
        warnings.warn("UNSAID is an older name; use UNSET", DeprecationWarning, stacklevel=2)
        return UNSET
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
