"""Compressors whose output is added as it is: none, and the casts to 16 bits that Horovod has."""

from __future__ import annotations

from typing import Any

import torch

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


class _CastCompressor(Compressor):
    """What the compressors that only change the dtype share: the way back."""

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_CastCompressor):
    """Sends and sums floating-point tensors as float16; values beyond 65504 become infinite.

    Others are untouched.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.float16) if tensor.is_floating_point() else tensor), tensor.dtype


class BF16Compressor(_CastCompressor):
    """Sends and sums floating-point tensors as bfloat16: float32's range, 8 significant bits.

    Others are untouched.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return (tensor.to(torch.bfloat16) if tensor.is_floating_point() else tensor), tensor.dtype
