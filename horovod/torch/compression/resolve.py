"""Resolves the argument ``compression=`` to a compressor that can be used."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from horovod import _native as native
from horovod.common.sentences import facts_of
from horovod.torch import devices
from horovod.torch.compression import errors
from horovod.torch.compression.casts import NoneCompressor
from horovod.torch.compression.configured import ConfiguredCompressor, instance_of
from horovod.torch.compression.contract import COMBINES, CompressorLike


def resolved(compression: Any, said: str = "") -> Any:
    """Return the compressor for ``compression``: a class that needs an instance gives its default one.

    ValueError, which begins with ``said`` (the argument or variable), if it is not a compressor.
    """
    said = said or f"compression={compression!r}"
    if isinstance(compression, type) and _needs_instance(compression):
        try:
            compression = instance_of(compression)
        except TypeError as error:
            raise errors.needs_arguments(**facts_of(error, said=said)) from error
    combine = getattr(compression, "combine", "sum")
    for method in ("rounds",) if combine == "rounds" else ("compress", "decompress"):
        if not callable(getattr(compression, method, None)):
            raise errors.no_compressor(said=said, method=method)
    if combine not in COMBINES:
        allowed = " or ".join(map(repr, COMBINES))
        raise errors.wrong_combine(said=said, value=combine, allowed=allowed)
    return compression


def _needs_instance(cls: type) -> bool:
    """Return whether the class' methods take ``self``; without options they are often static."""
    methods = (inspect.getattr_static(cls, name, None) for name in ("compress", "decompress", "rounds"))
    plain = [method for method in methods if inspect.isfunction(method)]
    return issubclass(cls, ConfiguredCompressor) or any(
        next(iter(inspect.signature(method).parameters), "") == "self" for method in plain
    )


def of_one_call(compression: Any) -> Any:
    """Return the compressor of a single collective. ValueError if error feedback was switched on.

    Error feedback that is on by default is ignored: it is for a DistributedOptimizer.
    """
    compressor = resolved(compression)
    cls = compressor if isinstance(compressor, type) else type(compressor)
    if getattr(compressor, "error_feedback", False) and not getattr(cls, "error_feedback", False):
        raise errors.feedback_of_one_call(compressor=repr(compressor))
    return compressor


def codec_for(compressor: Any, tensor: torch.Tensor) -> native.Codec | None:
    """Return the codec with which the core compresses a tensor that is summed; None if Python does.

    The core casts if that makes a tensor smaller, in host memory. On a GPU NCCL adds 16-bit floats itself.
    """
    codec: native.Codec | None = getattr(compressor, "codec", None)
    if codec is None or getattr(compressor, "combine", "sum") != "sum":
        return codec
    is_wide = tensor.dtype in (torch.float32, torch.float64)
    return codec if is_wide and devices.device_of(tensor) == devices.CPU else None


def around_autograd(compression: CompressorLike) -> tuple[Any, Any]:
    """Return (compressor inside the operation, compressor around it, whose steps autograd sees)."""
    compressor = of_one_call(compression)
    if getattr(compressor, "codec", None) is None and getattr(compressor, "combine", "sum") == "sum":
        return NoneCompressor, compressor
    return compressor, NoneCompressor
