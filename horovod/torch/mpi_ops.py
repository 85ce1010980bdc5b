"""Collectives on torch tensors, and the life cycle functions, as ``horovod.torch`` exports them.

Compressors are routed here and in submission.py: one with a native codec is worked by the core; one whose
output may be added ("sum") compresses, allreduces and decompresses; any other ("gather") takes the allgather
route of gathered.py.

Common arguments of the functions below:
    name: the same on all ranks for the same operation. Without one, operations must start in the same order
        everywhere.
    op: Average (the default), Sum, Min, Max or Product. ``average`` is its deprecated predecessor.
    prescale_factor, postscale_factor: multiply the tensor before, and the result after the reduction.
    process_set: global_process_set is the only one yet.
Common errors:
    ValueError: a wrong argument, a dtype or device that is not served, or a name that is in flight on this
        rank.
    HorovodInternalError: ranks disagree about the operation, or the job is shut down or broken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch

from horovod.common.basics import basics as _basics
from horovod.common.process_sets import ProcessSet, global_process_set, require_global
from horovod.torch.autograd import (
    CompressedGroupedAllreduce,
    HorovodAllgather,
    HorovodAllreduce,
    HorovodBroadcast,
    HorovodGroupedAllreduce,
    applied,
)
from horovod.torch.compression import Compression, CompressorLike, resolved
from horovod.torch.exchange import (
    allgather,
    allgather_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    sparse_allreduce_async,
)
from horovod.torch.handles import poll, synchronize
from horovod.torch.reduce_ops import (
    Adasum,
    Average,
    Max,
    Min,
    Product,
    Sum,
    handle_average_backwards_compatibility,
    reduce_arguments,
)
from horovod.torch.submission import start_allreduce

__all__ = [
    "Adasum", "Average", "HorovodAllgather", "HorovodAllreduce", "HorovodBroadcast",
    "HorovodGroupedAllreduce", "Max", "Min", "Product", "Sum", "allgather", "allgather_async", "allreduce",
    "allreduce_", "allreduce_async", "allreduce_async_", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "ccl_built", "cross_rank", "cross_size", "cuda_built", "ddl_built",
    "gloo_built", "gloo_enabled", "grouped_allreduce", "grouped_allreduce_", "grouped_allreduce_async",
    "grouped_allreduce_async_", "handle_average_backwards_compatibility", "init", "is_homogeneous",
    "is_initialized", "local_rank", "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported",
    "nccl_built", "poll", "rank", "rocm_built", "shutdown", "size", "sparse_allreduce_async", "synchronize",
]

_MPI_LIB_AVAILABLE = True

init = _basics.init
shutdown = _basics.shutdown
is_initialized = _basics.is_initialized
rank = _basics.rank
size = _basics.size
local_rank = _basics.local_rank
local_size = _basics.local_size
cross_rank = _basics.cross_rank
cross_size = _basics.cross_size
is_homogeneous = _basics.is_homogeneous
mpi_threads_supported = _basics.mpi_threads_supported
mpi_enabled = _basics.mpi_enabled
mpi_built = _basics.mpi_built
gloo_enabled = _basics.gloo_enabled
gloo_built = _basics.gloo_built
nccl_built = _basics.nccl_built
ddl_built = _basics.ddl_built
ccl_built = _basics.ccl_built
cuda_built = _basics.cuda_built
rocm_built = _basics.rocm_built


def _check_has_gpu() -> bool:
    return torch.cuda.is_available()


def _start(
    tensors: Sequence[torch.Tensor],
    average: bool | None,
    name: str | None,
    op: int | None,
    factors: tuple[float, float],
    process_set: ProcessSet,
    compression: CompressorLike,
    **how: bool,
) -> int:
    arguments = reduce_arguments(handle_average_backwards_compatibility(op, average), *factors)
    return start_allreduce(tensors, name, arguments, resolved(compression), process_set, **how)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start an allreduce into a new tensor, which ``synchronize`` of the returned handle gives.

    Not differentiable.
    """
    factors = (prescale_factor, postscale_factor)
    return _start(
        [tensor], average, name, op, factors, process_set, compression, in_place=False, grouped=False
    )


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """The reduction of all ranks' tensors, as a new tensor of the same shape and dtype; differentiable."""
    compressor, around = _around(compression)
    op = handle_average_backwards_compatibility(op, average)
    compressed, ctx = around.compress(tensor)
    reduced = applied(
        HorovodAllreduce,
        compressed,
        None,
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        compressor,
    )
    return cast(torch.Tensor, around.decompress(reduced, ctx))


def _around(compression: CompressorLike) -> tuple[Any, Any]:
    """The compressor to allreduce with, and the one to work around the allreduce, where autograd sees its
    steps.
    """
    compressor = resolved(compression)
    if getattr(compressor, "codec", None) is None and getattr(compressor, "combine", "sum") == "sum":
        return Compression.none, compressor
    return compressor, Compression.none


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start an allreduce in place: leave the tensor alone until ``synchronize`` has returned it."""
    factors = (prescale_factor, postscale_factor)
    return _start(
        [tensor], average, name, op, factors, process_set, compression, in_place=True, grouped=False
    )


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> torch.Tensor:
    """Replace the tensor's values by the reduction over all ranks, and return it."""
    factors = (prescale_factor, postscale_factor)
    handle = _start(
        [tensor], average, name, op, factors, process_set, compression, in_place=True, grouped=False
    )
    return cast(torch.Tensor, synchronize(handle))


def grouped_allreduce_async(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start one allreduce of several tensors, all or nothing; ``synchronize`` gives a tuple of new
    tensors.
    """
    factors = (prescale_factor, postscale_factor)
    return _start(tensors, average, name, op, factors, process_set, compression, in_place=False, grouped=True)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: CompressorLike = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """The reductions of several tensors, reduced together, as a list of new tensors; differentiable."""
    require_global(process_set)
    compressor, around = _around(compression)
    arguments = reduce_arguments(
        handle_average_backwards_compatibility(op, average), prescale_factor, postscale_factor
    )
    if not tensors:
        return []
    compressed, contexts = zip(*(around.compress(tensor) for tensor in tensors), strict=True)
    reduced = applied(CompressedGroupedAllreduce, compressor, name, arguments, *compressed)
    return [around.decompress(tensor, ctx) for tensor, ctx in zip(reduced, contexts, strict=True)]


def grouped_allreduce_async_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> int:
    """Start one in-place allreduce of several tensors, all or nothing; ``synchronize`` gives a tuple of
    them.
    """
    factors = (prescale_factor, postscale_factor)
    return _start(tensors, average, name, op, factors, process_set, compression, in_place=True, grouped=True)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    *,
    compression: CompressorLike = Compression.none,
) -> tuple[torch.Tensor, ...]:
    """Replace the values of several tensors by their reductions, reduced together; returns a tuple of
    them.
    """
    factors = (prescale_factor, postscale_factor)
    handle = _start(
        tensors, average, name, op, factors, process_set, compression, in_place=True, grouped=True
    )
    return cast(tuple[torch.Tensor, ...], synchronize(handle))
