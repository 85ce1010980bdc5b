"""The contract of a compressor: what it has to have, and what it may say about itself.

A compressor has ``compress(tensor) -> (compressed, ctx)`` and ``decompress(compressed, ctx) -> tensor``,
static or not; a class or an instance is passed as ``compression=``. ``combine`` says how its output may be
combined across ranks; one that needs to hear of the other ranks on the way has ``rounds`` instead of the two.
docs/own_compressor.md shows how to write one.
"""

from __future__ import annotations

from abc import ABCMeta
from collections.abc import Generator, MutableMapping
from typing import Any, ClassVar, Protocol

import torch

from horovod.torch.compression import errors

__all__ = ["COMBINES", "Compressor", "CompressorLike", "CompressorType", "Rounds", "State"]

COMBINES = ("sum", "gather", "rounds")

# What a compressor remembers of one tensor between its allreduces; tensors in it are saved in checkpoints.
State = MutableMapping[str, Any]

# Yields tensors, gets their sums over ranks, and returns the sum of what was compressed.
Rounds = Generator[torch.Tensor, torch.Tensor, torch.Tensor]


class CompressorLike(Protocol):
    """The type of ``compression=``. Missing attributes have the values that Compressor gives them."""

    def compress(self, tensor: torch.Tensor, /) -> tuple[torch.Tensor, Any]: ...

    def decompress(self, tensor: torch.Tensor, ctx: Any, /) -> torch.Tensor: ...


class CompressorType(ABCMeta):
    """Of compressors' classes: those that come with the package read as scripts write them."""

    known_as: str

    @property
    def short_name(cls) -> str:
        """As in text: ``bit8``; of any other class its own name."""
        return str(vars(cls).get("known_as", cls.__name__))  # a subclass is not what it inherits from

    def __repr__(cls) -> str:
        return f"Compression.{cls.known_as}" if "known_as" in vars(cls) else super().__repr__()


class Compressor(metaclass=CompressorType):
    """Base of all compressors.

    Attributes:
        combine: how the outputs of ``compress`` on different ranks may be combined.
            ``"sum"``: they are tensors of one shape and dtype on all ranks, and may be added as they are.
            ``"gather"``: codes that may not be added. Every rank's are gathered, decompressed and added in
            float32 (float64 for float64 gradients) in rank order; their size may differ by rank. All are
            decompressed with the caller's own ``ctx``, so whatever differs by rank (a scale, indices) belongs
            into the codes. Integer tensors are not given to such a compressor, they travel as they are.
            ``"rounds"``: ``rounds`` is called instead of ``compress`` and ``decompress``.
        codec: the native codec that does the same inside the core, or None. Overriding ``compress`` or
            ``decompress`` in a subclass gives up the codec that was inherited.
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
        """The tensor to send, and whatever ``decompress`` needs besides it."""
        raise errors.lacks_method(signature="compress(tensor) -> (compressed, ctx)")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """The tensor that ``tensor`` stands for, in the shape and dtype that ``compress`` was given."""
        raise errors.lacks_method(signature="decompress(compressed, ctx) -> tensor")

    def __repr__(self) -> str:
        return f"{type(self)!r}()" if "known_as" in vars(type(self)) else super().__repr__()

    # decompress_add(codes, ctx, total): may be there where combine is "gather", and adds what decompress
    # would return to ``total`` (float32 or float64, contiguous): cheaper where most of it is zero.

    # misfit(shape, state): may be there where combine is "rounds", and says why a state that a checkpoint has
    # is of no use for a tensor of this shape; "" where it is of use.

    @staticmethod
    def rounds(tensor: torch.Tensor, state: State) -> Rounds:
        """The sum of all ranks' tensors, in this one's shape, made from sums of what is yielded.

        All ranks must yield as many tensors, of the same shapes and dtypes; and compute the result from the
        sums alone, in a way that gives the same bits on every machine. ``tensor`` must not be written to.
        ``state`` is what was left in it when the same name was reduced last, or empty.
        """
        raise errors.lacks_rounds()
