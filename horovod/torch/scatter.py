"""Collectives that give every rank its own rows: alltoall and reduce-scatter.

Arguments and errors are those of mpi_ops.py, which exports these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.autograd import HorovodAlltoall, HorovodGroupedReducescatter, HorovodReducescatter, applied
from horovod.torch.compiling import breaks_graphs
from horovod.torch.compression import Compression, CompressorLike, around_autograd, codec_for
from horovod.torch.reduce_ops import Average, reduce_arguments
from horovod.torch.requests import start_alltoall, start_reducescatter

__all__ = [
    "alltoall", "alltoall_async", "grouped_reducescatter", "grouped_reducescatter_async", "reducescatter",
    "reducescatter_async",
]


@breaks_graphs
def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall; ``synchronize`` of the handle gives (output, received splits). Not
    differentiable.
    """
    return start_alltoall(tensor, splits, name, process_set)


@breaks_graphs
def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send rows of the tensor to every rank, and get theirs, concatenated in rank order; differentiable.

    Args:
        tensor: rows along dimension 0; the other dimensions agree on all ranks.
        splits: int32, shape (size,): how many rows go to each rank, one after the other. None: equally many.

    Returns:
        The rows received; with splits also how many came from each rank, as int32 of shape (size,).
    """
    output, received = applied(HorovodAlltoall, tensor, splits, name, process_set)
    return output if splits is None else (output, received)


@breaks_graphs
def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reduce-scatter, whose output ``synchronize`` of the handle gives. Not differentiable."""
    arguments = reduce_arguments(op, prescale_factor, postscale_factor)
    return start_reducescatter([tensor], name, arguments, None, process_set, grouped=False)


@breaks_graphs
def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """This rank's rows of the reduction (Average or Sum) of all ranks' tensors; differentiable.

    Rows are split along dimension 0; the first ``rows % size`` ranks get one more than the others.
    """
    codec, around = _codec_and_around(compression, [tensor])
    compressed, ctx = around.compress(tensor)
    reduced = applied(
        HorovodReducescatter, compressed, name, op, process_set, prescale_factor, postscale_factor, codec
    )
    return cast(torch.Tensor, around.decompress(reduced, ctx))


@breaks_graphs
def grouped_reducescatter_async(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start reduce-scatters of several tensors, all or nothing; ``synchronize`` gives a tuple."""
    arguments = reduce_arguments(op, prescale_factor, postscale_factor)
    return start_reducescatter(tensors, name, arguments, None, process_set, grouped=True)


@breaks_graphs
def grouped_reducescatter(
    tensors: Sequence[torch.Tensor],
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """``reducescatter`` of several tensors, reduced together, all or nothing; differentiable."""
    if not tensors:
        return []
    codec, around = _codec_and_around(compression, tensors)
    compressed, contexts = zip(*(around.compress(tensor) for tensor in tensors), strict=True)
    factors = (prescale_factor, postscale_factor)
    reduced = applied(HorovodGroupedReducescatter, name, op, process_set, *factors, codec, *compressed)
    return [around.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts, strict=True)]


def _codec_and_around(compression: CompressorLike, tensors: Sequence[torch.Tensor]) -> tuple[Any, Any]:
    """The core's codec to work with, if any, and the compressor to work around the operation.

    Of a group the core casts all tensors or none.

    ValueError for a compressor whose output may not be added, and that the core does not know.
    """
    compressor, around = around_autograd(compression)
    codec = getattr(compressor, "codec", None)
    if codec is not None and not all(codec_for(compressor, tensor) for tensor in tensors):
        return None, compressor
    if codec is None and compressor is not Compression.none:
        raise ValueError(
            f"reducescatter: the output of {compressor!r} may not be added on the way; use a compressor of "
            "hvd.Compression, or allreduce."
        )
    return codec, around
