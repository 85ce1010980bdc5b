"""Collectives as autograd functions: what the gradient of each is.

allreduce's gradient is allreduced in the same way. The gradients of allgather and broadcast are *averaged*
over ranks, as in Horovod; the true adjoint is the sum. Operations of the backward pass have no names, so they
must run in the same order on every rank.
"""

from __future__ import annotations

from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, require_global
from horovod.torch.compression import NoneCompressor, resolved
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import Average, handle_average_backwards_compatibility, reduce_arguments
from horovod.torch.submission import start_allgather, start_allreduce, start_broadcast

__all__ = [
    "CompressedGroupedAllreduce", "HorovodAllgather", "HorovodAllreduce", "HorovodBroadcast",
    "HorovodGroupedAllreduce", "applied",
]


def applied(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """``function.apply``, which torch leaves untyped."""
    return function.apply(*arguments)  # type: ignore[no-untyped-call]


class CompressedGroupedAllreduce(torch.autograd.Function):
    """Allreduce of a group by a compressor that the core or the gathered route works with, or by none."""

    @staticmethod
    def forward(ctx: Any, compressor: Any, name: str | None, arguments: Any, *tensors: torch.Tensor) -> Any:
        ctx.compressor, ctx.arguments = compressor, arguments
        return synchronize(
            start_allreduce(tensors, name, arguments, compressor, in_place=False, grouped=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (
            None,
            None,
            None,
            *applied(CompressedGroupedAllreduce, ctx.compressor, None, ctx.arguments, *gradients),
        )


class HorovodAllreduce(torch.autograd.Function):
    """Allreduce of one tensor; its gradient is allreduced with the same op, factors and compressor."""

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        *process_set_and_compression: Any,
    ) -> Any:
        process_set, compression = (*process_set_and_compression, NoneCompressor)[:2]
        require_global(process_set)
        ctx.op = handle_average_backwards_compatibility(op, average)
        ctx.factors = (prescale_factor, postscale_factor, process_set, compression)
        ctx.ignored = (None,) * (5 + len(process_set_and_compression))
        arguments = reduce_arguments(ctx.op, prescale_factor, postscale_factor)
        return synchronize(
            start_allreduce([tensor], name, arguments, resolved(compression), in_place=False, grouped=False)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = applied(HorovodAllreduce, gradients[0], None, None, ctx.op, *ctx.factors)
        return reduced, *ctx.ignored


class HorovodGroupedAllreduce(torch.autograd.Function):
    """Allreduce of a group of tensors; the gradients are allreduced as a group, with the same op and
    factors.
    """

    @staticmethod
    def forward(
        ctx: Any,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        require_global(process_set)
        ctx.op = handle_average_backwards_compatibility(op, average)
        ctx.factors = (prescale_factor, postscale_factor, process_set)
        arguments = reduce_arguments(ctx.op, prescale_factor, postscale_factor)
        return synchronize(
            start_allreduce(tensors, name, arguments, NoneCompressor, in_place=False, grouped=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = applied(HorovodGroupedAllreduce, None, None, ctx.op, *ctx.factors, *gradients)
        return (None, None, None, None, None, None, *reduced)


class HorovodAllgather(torch.autograd.Function):
    """Allgather; the gradient is the average over ranks of the rows this rank contributed."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> Any:
        require_global(process_set)
        ctx.process_set = process_set
        ctx.sizes = []
        return synchronize(start_allgather(tensor, name, process_set, ctx.sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        averaged = applied(HorovodAllreduce, gradients[0], None, None, Average, 1.0, 1.0, ctx.process_set)
        rank = basics.rank()
        return averaged.narrow(0, sum(ctx.sizes[:rank]), ctx.sizes[rank]), None, None


class HorovodBroadcast(torch.autograd.Function):
    """Broadcast; the gradient is the average over ranks on root, and zero elsewhere."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Any:
        require_global(process_set)
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(start_broadcast(tensor, root_rank, name, in_place=False))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        averaged = applied(HorovodAllreduce, gradients[0], None, None, Average, 1.0, 1.0, ctx.process_set)
        return (averaged if basics.rank() == ctx.root_rank else averaged * 0), None, None, None
