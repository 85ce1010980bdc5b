"""The collectives as autograd functions, with their gradients.

The gradient of an allreduce is allreduced in the same way, and that of an alltoall travels back by alltoall.
The gradients of allgather and broadcast are *averaged* over ranks, and that of a reduce-scatter is multiplied
by the number of ranks, as in Horovod. The true adjoints are the sum, and no factor. Operations of the
backward pass have no names, so they must run in the same order on every rank.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch

from horovod.common import jobs
from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch.compression import NoneCompressor, resolved
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import Average, Sum, handle_average_backwards_compatibility, reduce_arguments
from horovod.torch.requests import (
    start_allgather,
    start_alltoall,
    start_broadcast,
    start_grouped_allgather,
    start_reducescatter,
)
from horovod.torch.submission import start_allreduce

__all__ = [
    "CompressedGroupedAllreduce", "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall",
    "HorovodBroadcast",
    "HorovodGroupedAllgather", "HorovodGroupedAllreduce", "HorovodGroupedReducescatter",
    "HorovodReducescatter", "OfItsJob",
]


class OfItsJob(torch.autograd.Function):
    """A function whose ``backward`` works for the job of its ``forward``, on any thread."""

    if TYPE_CHECKING:  # torch has no type for it

        @classmethod
        def apply(cls, *arguments: Any) -> Any: ...

    def __init_subclass__(cls) -> None:
        forward, backward = cls.forward, cls.backward

        @functools.wraps(forward)
        def noting_the_job(ctx: Any, *arguments: Any) -> Any:
            ctx.job = jobs.current()
            return forward(ctx, *arguments)

        @functools.wraps(backward)
        def in_the_job(ctx: Any, *gradients: Any) -> Any:
            return ctx.job.run(backward, ctx, *gradients)

        cls.forward, cls.backward = staticmethod(noting_the_job), staticmethod(in_the_job)  # type: ignore[method-assign]


class CompressedGroupedAllreduce(OfItsJob):
    """Allreduce of a group, without compressor or with one of the core or of the gathered route."""

    @staticmethod
    def forward(
        ctx: Any,
        compressor: Any,
        name: str | None,
        arguments: Any,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        ctx.how = (compressor, None, arguments, process_set)
        return synchronize(
            start_allreduce(tensors, name, arguments, compressor, process_set, grouped=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (None, None, None, None, *CompressedGroupedAllreduce.apply(*ctx.how, *gradients))


class HorovodAllreduce(OfItsJob):
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
        ctx.op = handle_average_backwards_compatibility(op, average)
        ctx.factors = (prescale_factor, postscale_factor, process_set, compression)
        ctx.ignored = (None,) * (5 + len(process_set_and_compression))
        arguments = reduce_arguments(ctx.op, prescale_factor, postscale_factor)
        return synchronize(
            start_allreduce([tensor], name, arguments, resolved(compression), process_set)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = HorovodAllreduce.apply(gradients[0], None, None, ctx.op, *ctx.factors)
        return reduced, *ctx.ignored


class HorovodGroupedAllreduce(OfItsJob):
    """Allreduce of a group. The gradients are allreduced as a group, with the same op and factors."""

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
        ctx.op = handle_average_backwards_compatibility(op, average)
        ctx.factors = (prescale_factor, postscale_factor, process_set)
        arguments = reduce_arguments(ctx.op, prescale_factor, postscale_factor)
        return synchronize(
            start_allreduce(tensors, name, arguments, NoneCompressor, process_set, grouped=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        reduced = HorovodGroupedAllreduce.apply(None, None, ctx.op, *ctx.factors, *gradients)
        return (None, None, None, None, None, None, *reduced)


class HorovodAllgather(OfItsJob):
    """Allgather. The gradient is the average over ranks of the rows that this rank contributed."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> Any:
        ctx.process_set = process_set
        ctx.sizes = []
        return synchronize(start_allgather(tensor, name, process_set, ctx.sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        averaged = HorovodAllreduce.apply(gradients[0], None, None, Average, 1.0, 1.0, ctx.process_set)
        return _own_part(averaged, ctx.sizes, ctx.process_set), None, None


def _own_part(tensor: torch.Tensor, sizes: list[int], process_set: ProcessSet) -> torch.Tensor:
    rank = process_set.rank()
    assert rank is not None
    return tensor.narrow(0, sum(sizes[:rank]), sizes[rank])


class HorovodGroupedAllgather(OfItsJob):
    """Allgather of several tensors, with gradients as in HorovodAllgather."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.process_set = process_set
        ctx.sizes = [[] for _ in tensors]
        return synchronize(start_grouped_allgather(tensors, name, process_set, ctx.sizes))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        how = (None, None, Average, 1.0, 1.0, ctx.process_set)
        averaged = HorovodGroupedAllreduce.apply(*how, *gradients)
        parts = (
            _own_part(gradient, sizes, ctx.process_set)
            for gradient, sizes in zip(averaged, ctx.sizes, strict=True)
        )
        return (None, None, *parts)


class HorovodBroadcast(OfItsJob):
    """Broadcast. The gradient is the average over ranks on the root, and zero on other ranks."""

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(start_broadcast(tensor, root_rank, name, process_set, in_place=False))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        averaged = HorovodAllreduce.apply(gradients[0], None, None, Average, 1.0, 1.0, ctx.process_set)
        return (averaged if basics.rank() == ctx.root_rank else averaged * 0), None, None, None


class HorovodAlltoall(OfItsJob):
    """Alltoall. The gradient goes back by alltoall, with the received splits.

    Rows that the splits left out have gradient zero.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, splits: torch.Tensor | None, name: str | None, process_set: ProcessSet
    ) -> Any:
        ctx.process_set, ctx.rows = process_set, tensor.shape[0] if tensor.dim() else 0
        sizes: list[int] = []
        output, received = synchronize(start_alltoall(tensor, splits, name, process_set, sizes))  # type: ignore[misc]
        # in host memory, as alltoall requires of splits
        ctx.received = torch.tensor(sizes, dtype=torch.int32)
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        returned, _ = HorovodAlltoall.apply(gradients[0], ctx.received, None, ctx.process_set)
        if returned.shape[0] < ctx.rows:
            missing = returned.new_zeros((ctx.rows - returned.shape[0], *returned.shape[1:]))
            returned = torch.cat([returned, missing])
        return returned, None, None, None


class HorovodReducescatter(OfItsJob):
    """Reduce-scatter.

    The gradient is the allgather of the gradients, times the factors and, for Sum, the number of ranks.
    """

    @staticmethod
    def forward(
        ctx: Any,
        tensor: torch.Tensor,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        *codec: Any,
    ) -> Any:
        arguments = reduce_arguments(op, prescale_factor, postscale_factor)
        ctx.arguments, ctx.process_set = arguments, process_set
        ctx.ignored = (None,) * (5 + len(codec))
        native_codec = codec[0] if codec else None
        return synchronize(
            start_reducescatter([tensor], name, arguments, native_codec, process_set, grouped=False)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gathered = HorovodAllgather.apply(gradients[0], None, ctx.process_set)
        return gathered * _scatter_factor(ctx), *ctx.ignored


class HorovodGroupedReducescatter(OfItsJob):
    """Reduce-scatter of several tensors, with gradients as in HorovodReducescatter."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        op: int,
        process_set: ProcessSet,
        prescale_factor: float,
        postscale_factor: float,
        codec: Any,
        *tensors: torch.Tensor,
    ) -> Any:
        arguments = reduce_arguments(op, prescale_factor, postscale_factor)
        ctx.arguments, ctx.process_set = arguments, process_set
        return synchronize(start_reducescatter(tensors, name, arguments, codec, process_set, grouped=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        gathered = HorovodGroupedAllgather.apply(None, ctx.process_set, *gradients)
        factor = _scatter_factor(ctx)
        return (None, None, None, None, None, None, *(gradient * factor for gradient in gathered))


def _scatter_factor(ctx: Any) -> float:
    ranks = ctx.process_set.size() if ctx.arguments.op == Sum else 1
    return float(ctx.arguments.prescale * ctx.arguments.postscale * ranks)
