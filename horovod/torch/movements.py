"""Collectives that move tensors: allgather, broadcast, alltoall and the sparse allreduce; barrier and join.

mpi_ops.py, which exports these functions, documents their arguments and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import errors
from horovod.torch.autograd import (
    HorovodAllgather,
    HorovodAlltoall,
    HorovodBroadcast,
    HorovodGroupedAllgather,
)
from horovod.torch.compiling import breaks_graphs
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.requests import start_allgather, start_alltoall, start_barrier, start_broadcast
from horovod.torch.tensors import check_averaged

__all__ = [
    "allgather", "allgather_async", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "grouped_allgather", "grouped_allgather_async", "join",
    "sparse_allreduce_async",
]  # fmt: skip


@breaks_graphs
def sparse_allreduce_async(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet = global_process_set
) -> Callable[[], torch.Tensor]:
    """Start an allreduce (Sum or Average) of a sparse COO tensor, as allgathers of indices and of values.

    Returns:
        A function that finishes the operation and returns the reduced sparse tensor, not coalesced.
    """
    return start_sparse_allreduce(tensor, name, op, process_set)[1]


def start_sparse_allreduce(
    tensor: torch.Tensor, name: str, op: int, process_set: ProcessSet
) -> tuple[list[int], Callable[[], torch.Tensor]]:
    """Like ``sparse_allreduce_async``; also return the started handles."""
    if op not in (Average, Sum):
        raise errors.sparse_op(tensor=f"sparse_allreduce_async of {name!r}", value=op)
    check_averaged(tensor, f"sparse_allreduce_async of {name!r}", op)
    coalesced = tensor.detach().coalesce()
    indices = allgather_async(coalesced.indices().t().contiguous(), f"{name}.indices", process_set)
    values = allgather_async(coalesced.values(), f"{name}.values", process_set)
    ranks = process_set.size() or 1

    def finish() -> torch.Tensor:
        all_values = cast(torch.Tensor, synchronize(values))
        all_indices = cast(torch.Tensor, synchronize(indices)).t()
        is_whole = not (tensor.is_floating_point() or tensor.is_complex())
        if op == Average and is_whole:
            return _sparse_integer_average(all_indices, all_values, tensor.shape, ranks)
        if op == Average:
            all_values = (all_values / ranks).to(tensor.dtype)
        return torch.sparse_coo_tensor(all_indices, all_values, tensor.shape, check_invariants=False)

    return [values, indices], finish


def _sparse_integer_average(
    indices: torch.Tensor, values: torch.Tensor, shape: torch.Size, ranks: int
) -> torch.Tensor:
    """Return the exact average, truncated towards zero, as the core's.

    Quotients and remainders are added separately, so that sums do not overflow.
    """
    wide = values.long()
    quotients = torch.div(wide, ranks, rounding_mode="trunc")
    parts = torch.stack([quotients, wide - quotients * ranks], -1)
    added = torch.sparse_coo_tensor(indices, parts, (*shape, 2), check_invariants=False).coalesce()
    whole, rest = added.values().unbind(-1)
    mean = whole + torch.div(rest, ranks, rounding_mode="floor")  # rounded down, by less than 1
    mean += (mean < 0) & (rest % ranks != 0)
    return torch.sparse_coo_tensor(added.indices(), mean.to(values.dtype), shape, check_invariants=False)


@breaks_graphs
def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start an allgather. ``synchronize`` of the handle returns the concatenation. Not differentiable."""
    return start_allgather([tensor], name, process_set)


@breaks_graphs
def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return all ranks' tensors, concatenated along dimension 0 in rank order. Differentiable.

    The first dimension may differ by rank. All others must agree.
    """
    return cast(torch.Tensor, HorovodAllgather.apply(tensor, name, process_set))


@breaks_graphs
def grouped_allgather_async(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start allgathers of several tensors, all or nothing. ``synchronize`` returns a tuple.

    Not differentiable.
    """
    return start_allgather(tensors, name, process_set, grouped=True)


@breaks_graphs
def grouped_allgather(
    tensors: Sequence[torch.Tensor], name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """``allgather`` of several tensors, all or nothing. Differentiable."""
    return list(HorovodGroupedAllgather.apply(name, process_set, *tensors)) if tensors else []


@breaks_graphs
def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast into a new tensor, which ``synchronize`` of the handle returns.

    Not differentiable.
    """
    return start_broadcast(tensor, root_rank, name, process_set, in_place=False)


@breaks_graphs
def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return a copy of rank ``root_rank``'s tensor. Differentiable.

    ``root_rank`` is a rank of the job even with a process set. Shape and dtype must agree on all ranks.
    """
    return cast(torch.Tensor, HorovodBroadcast.apply(tensor, root_rank, name, process_set))


@breaks_graphs
def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast in place. Do not use the tensor until ``synchronize`` has returned it."""
    return start_broadcast(tensor, root_rank, name, process_set, in_place=True)


@breaks_graphs
def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Replace the tensor's values by those of rank ``root_rank``'s, and return it."""
    return cast(torch.Tensor, synchronize(broadcast_async_(tensor, root_rank, name, process_set)))


@breaks_graphs
def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall. ``synchronize`` of the handle returns (output, received splits).

    Not differentiable.
    """
    return start_alltoall(tensor, splits, name, process_set)


@breaks_graphs
def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """Send rows of the tensor to every rank, and receive theirs, concatenated in rank order. Differentiable.

    Args:
        tensor: rows along dimension 0; the other dimensions agree on all ranks.
        splits: int32, shape (size,): the number of consecutive rows for each rank. None: equal numbers.

    Returns:
        The received rows. With ``splits`` also the number of rows from each rank, as int32 of shape (size,).
    """
    output, received = HorovodAlltoall.apply(tensor, splits, name, process_set)
    return output if splits is None else (output, received)


@breaks_graphs
def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when every rank of the set has called it. Operations in flight stay in flight."""
    synchronize(start_barrier(process_set))


@breaks_graphs
def join(device: int = -1) -> int:
    """Announce that this rank has no more data, and wait until all ranks have done so.

    Until then this rank takes part in the others' allreduces with zeros, or with values that do not change a
    Min, Max or Product. An Average still divides by the number of all ranks. Other operations fail on the
    others with HorovodInternalError, as does a Product with a prescale_factor. ``device`` is accepted for
    compatibility: this rank's part in GPU operations is on the GPU that it has used before, or else on that
    of its local rank.

    Returns:
        The rank that joined last, the same on all ranks.
    """
    return basics.member().join()
