"""Compressors whose output is added unchanged: none, and Horovod's casts to 16 bits."""

from __future__ import annotations

import functools
from typing import Any, ClassVar

import torch

from horovod import _native as native
from horovod.torch.compression.contract import Compressor


class NoneCompressor(Compressor):
    """Sends gradients unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CodecOfClass:
    """A native codec as a class attribute, made at the first access."""

    def __init__(self, name: str) -> None:
        self._name = name

    @functools.cached_property
    def _codec(self) -> native.Codec:
        return native.codec_named(self._name)

    def __get__(self, instance: Any, owner: type) -> native.Codec:
        return self._codec


class _CastCompressor(Compressor):
    """The base of compressors that only change the dtype."""

    dtype: ClassVar[torch.dtype]

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(cls.dtype) if tensor.is_floating_point() else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16, in which values beyond 65504 become infinite.

    Other tensors are unchanged. The core casts float32 and float64 in host memory. It sums in float32, and
    computes an average before it casts the result. Elsewhere the casts themselves are added.
    """

    dtype = torch.float16
    codec = _CodecOfClass("fp16")


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: float32's range, 8 significant bits. Others are unchanged.

    Sums are computed as with FP16Compressor.
    """

    dtype = torch.bfloat16
    codec = _CodecOfClass("bf16")
