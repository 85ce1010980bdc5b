"""The interface of a compressor: required methods and optional attributes.

A compressor has ``compress(tensor) -> (compressed, ctx)`` and ``decompress(compressed, ctx) -> tensor``,
static or not. A class or an instance is passed as ``compression=``. ``combine`` tells how outputs may be
combined across ranks. A compressor that needs sums over ranks on the way has ``rounds`` instead.
docs/own_compressor.md shows how to write one.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Generator, MutableMapping
from typing import Any, ClassVar, Protocol

import torch

from horovod.torch.compression import errors

COMBINES = ("sum", "gather", "rounds")

# A compressor's state of one tensor between allreduces. Checkpoints contain the tensors in it.
State = MutableMapping[str, Any]

# Yields tensors, receives their sums over ranks, and returns the sum of the compressed tensors.
Rounds = Generator[torch.Tensor, torch.Tensor, torch.Tensor]


class CompressorLike(Protocol):
    """The type of ``compression=``. Missing attributes have the defaults of Compressor."""

    def compress(self, tensor: torch.Tensor, /) -> tuple[torch.Tensor, Any]: ...

    def decompress(self, tensor: torch.Tensor, ctx: Any, /) -> torch.Tensor: ...


class CompressorType(ABCMeta):
    """The metaclass of compressors. Those of the package have the repr that scripts write."""

    known_as: str

    @property
    def short_name(cls) -> str:
        """The name in text: ``bit8``, or the class's own name."""
        return str(vars(cls).get("known_as", cls.__name__))  # not inherited by a subclass

    def __repr__(cls) -> str:
        return f"Compression.{cls.known_as}" if "known_as" in vars(cls) else super().__repr__()


class Compressor(metaclass=CompressorType):
    """Base of all compressors.

    Attributes:
        combine: how the outputs of ``compress`` on different ranks may be combined.
            ``"sum"``: they are tensors of one shape and dtype on all ranks, and may be added unchanged.
            ``"gather"``: codes that may not be added. All ranks' codes are gathered, decompressed and
            added in float32 (float64 for float64 gradients) in rank order; their size may differ by
            rank. Each rank decompresses all of them with its own ``ctx``, so data that differ by rank
            (a scale, indices) must be part of the codes. Integer tensors travel uncompressed.
            ``"rounds"``: ``rounds`` is called instead of ``compress`` and ``decompress``.
        codec: the native codec that does the same inside the core, or None. A subclass that overrides
            ``compress`` or ``decompress`` does not inherit it.
        min_elements: in DistributedOptimizer, parameters with fewer elements, and all with fewer than two
            dimensions, travel uncompressed; None compresses all.
        error_feedback: in DistributedOptimizer, what compression loses of a gradient is added to the next.
    """

    combine: ClassVar[str] = "sum"
    codec: Any = None
    min_elements: Any = None
    error_feedback: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "codec" not in vars(cls) and not vars(cls).keys().isdisjoint(("compress", "decompress")):
            cls.codec = None

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and any other data that ``decompress`` needs."""
        raise errors.lacks_method(signature="compress(tensor) -> (compressed, ctx)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the decompressed tensor, in the shape and dtype of the argument of ``compress``."""
        raise errors.lacks_method(signature="decompress(compressed, ctx) -> tensor")

    def __repr__(self) -> str:
        return f"{type(self)!r}()" if "known_as" in vars(type(self)) else super().__repr__()

    # decompress_add(codes, ctx, total): optional for "gather". Adds the decompressed tensor to ``total``
    # (float32 or float64, contiguous), which is cheaper if most of it is zero.

    # misfit(shape, state): optional for "rounds". Returns why a checkpoint's state does not suit a tensor of
    # this shape; "" if it does.

    @staticmethod
    def rounds(tensor: torch.Tensor, state: State) -> Rounds:
        """Return the sum of all ranks' tensors, in this one's shape, computed from sums of yielded tensors.

        All ranks must yield equally many tensors, of the same shapes and dtypes, and compute the result from
        the sums alone, with the same bits on every machine. ``tensor`` must not be written to. ``state`` is
        what the last reduction of that name left, or empty.
        """
        raise errors.lacks_rounds()
