"""Compressors whose output is added as it is: none, and the casts to 16 bits that Horovod has."""

from __future__ import annotations

import functools
from typing import Any

import torch

from horovod import _native as native
from horovod.torch.compression.contract import Compressor

__all__ = ["BF16Compressor", "FP16Compressor", "NoneCompressor"]


class NoneCompressor(Compressor):
    """Sends gradients as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CodecOfClass:
    """The native codec of that name, as an attribute of a class; made once, when it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    @functools.cached_property
    def _codec(self) -> native.Codec:
        return native.codec_named(self._name)

    def __get__(self, instance: Any, owner: type) -> native.Codec:
        return self._codec


class _CastCompressor(Compressor):
    """The base of compressors that only change the dtype: the way back."""

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16, where values beyond 65504 become infinite; others as they are.

    Where the core casts, which it does with float32 and float64 in host memory, it sums in float32, and an
    average is made before its result is cast. Elsewhere the casts themselves are added.
    """

    codec = _CodecOfClass("fp16")

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.float16) if tensor.is_floating_point() else tensor), tensor.dtype


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: float32's range, 8 significant bits; others as they are.

    Sums are made as FP16Compressor says.
    """

    codec = _CodecOfClass("bf16")

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor), tensor.dtype
