"""The collectives as autograd functions, with their gradients.

Most functions take a group and return a tuple. Others only have Horovod's name and arguments, and call them.

The gradient of an allreduce is allreduced in the same way, and that of an alltoall travels back by alltoall.
The gradients of allgather and broadcast are *averaged* over ranks, and that of a reduce-scatter is multiplied
by the number of ranks, as in Horovod. The true adjoints are the sum, and no factor. Operations of the
backward pass have no names, so they must run in the same order on every rank.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from horovod.common import jobs
from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch.compression import NoneCompressor
from horovod.torch.handles import synchronize
from horovod.torch.reduce_ops import Average, ReduceArguments, Sum, allreduce_arguments, reduce_arguments
from horovod.torch.requests import start_allgather, start_alltoall, start_broadcast, start_reducescatter
from horovod.torch.submission import start_allreduce

__all__ = [
    "HorovodAllgather", "HorovodAllreduce", "HorovodAlltoall", "HorovodBroadcast", "HorovodGroupedAllgather",
    "HorovodGroupedAllreduce", "HorovodGroupedReducescatter", "HorovodReducescatter",
]  # fmt: skip


class OfItsJob(torch.autograd.Function):
    """A function whose ``backward`` works for the job of its ``forward``, on any thread."""

    if TYPE_CHECKING:  # torch has no type for it

        @classmethod
        def apply(cls, *arguments: Any) -> Any: ...

    def __init_subclass__(cls) -> None:
        if "forward" not in vars(cls):
            return
        forward, backward = cls.forward, cls.backward

        @functools.wraps(forward)
        def noting_the_job(ctx: Any, *arguments: Any) -> Any:
            ctx.job = jobs.current()
            return forward(ctx, *arguments)

        @functools.wraps(backward)
        def in_the_job(ctx: Any, *gradients: Any) -> Any:
            return ctx.job.run(backward, ctx, *gradients)

        cls.forward, cls.backward = staticmethod(noting_the_job), staticmethod(in_the_job)  # type: ignore[method-assign]


class Allreduce(OfItsJob):
    """Allreduce of a group. The gradients are allreduced as a group, in the same way.

    ``compressor`` is resolved: none, or one of the core or of the gathered route.
    """

    @staticmethod
    def forward(
        ctx: Any,
        name: str | None,
        arguments: ReduceArguments,
        compressor: Any,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        ctx.how = (None, arguments, compressor, process_set)
        return synchronize(
            start_allreduce(tensors, name, arguments, compressor, process_set, grouped=True)
        )

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return (None, None, None, None, *Allreduce.apply(*ctx.how, *gradients))


def _averages(gradients: Sequence[torch.Tensor], process_set: ProcessSet) -> Any:
    return Allreduce.apply(None, reduce_arguments(Average, 1.0, 1.0), NoneCompressor, process_set, *gradients)


class HorovodGroupedAllreduce(OfItsJob):
    """Horovod's arguments for Allreduce."""

    @classmethod
    def apply(
        cls,
        average: bool | None,
        name: str | None,
        op: int | None,
        prescale_factor: float,
        postscale_factor: float,
        process_set: ProcessSet,
        *tensors: torch.Tensor,
    ) -> Any:
        arguments = allreduce_arguments(average, op, prescale_factor, postscale_factor)
        return Allreduce.apply(name, arguments, NoneCompressor, process_set, *tensors)


class HorovodAllreduce(OfItsJob):
    """Like HorovodGroupedAllreduce, of one tensor."""

    @classmethod
    def apply(cls, tensor: torch.Tensor, *arguments: Any) -> Any:
        return HorovodGroupedAllreduce.apply(*arguments, tensor)[0]


class HorovodGroupedAllgather(OfItsJob):
    """Allgather. The gradient is the average over ranks of the rows that this rank contributed."""

    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        ctx.process_set, ctx.sizes = process_set, [[] for _ in tensors]
        return synchronize(start_allgather(tensors, name, process_set, ctx.sizes, grouped=True))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        rank = ctx.process_set.rank()
        averages = zip(_averages(gradients, ctx.process_set), ctx.sizes, strict=True)
        return (None, None, *(mean.narrow(0, sum(sizes[:rank]), sizes[rank]) for mean, sizes in averages))


class HorovodAllgather(OfItsJob):
    """Like HorovodGroupedAllgather, of one tensor."""

    @classmethod
    def apply(cls, tensor: torch.Tensor, name: str | None, process_set: ProcessSet) -> Any:
        return HorovodGroupedAllgather.apply(name, process_set, tensor)[0]


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
        (averaged,) = _averages(gradients, ctx.process_set)
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


class HorovodGroupedReducescatter(OfItsJob):
    """Reduce-scatter.

    The gradient is the allgather of the gradients, times the factors and, for Sum, the number of ranks.
    """

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
        ranks = ctx.process_set.size() if ctx.arguments.op == Sum else 1
        factor = float(ctx.arguments.prescale * ctx.arguments.postscale * ranks)
        return (None, None, None, None, None, None, *(gradient * factor for gradient in gathered))


class HorovodReducescatter(OfItsJob):
    """Like HorovodGroupedReducescatter, of one tensor. ``codec`` is optional."""

    @classmethod
    def apply(cls, tensor: torch.Tensor, *arguments_and_codec: Any) -> Any:
        arguments, codec = arguments_and_codec[:5], (*arguments_and_codec[5:], None)[0]
        return HorovodGroupedReducescatter.apply(*arguments, codec, tensor)[0]
