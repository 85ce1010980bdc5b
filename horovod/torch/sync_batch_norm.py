"""SyncBatchNorm: batch normalisation over the batches of all ranks.

In training a forward pass costs one small allgather (mean, variance and count of each rank), and a backward
pass one small allreduce. Both block and carry float64. Their names contain only the number of channels, so
layers must run in the same order on every rank, as the layers of one model do. The host does not wait for a
GPU: the count of all ranks' values stays there too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.lazy import LazyModuleMixin

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch import batch_norm_kernels as kernels
from horovod.torch import devices, errors
from horovod.torch.autograd import OfItsJob
from horovod.torch.batch_norm_kernels import Statistics
from horovod.torch.handles import synchronize
from horovod.torch.mpi_ops import Sum, allgather_async, allreduce_async_

__all__ = ["SyncBatchNorm"]

FLOATING = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class SyncBatchNorm(_BatchNorm):
    """Batch normalisation with mean and variance of the batches of all ranks of ``process_set``.

    Input is [N, C] or [N, C, *], on CPU or CUDA, of any floating dtype; output has its dtype and memory
    format. N and * may differ by rank, and N may be 0 on some. Statistics are float32, or float64 for float64
    input. In eval mode, and with one rank, this is an ordinary batch normalisation without communication.

    The gradients of weight and bias are those of this rank's batch: DistributedOptimizer reduces them like
    all others. State dicts are those of torch.nn.BatchNorm.

    Args:
        num_features: the number of channels C. It, eps, momentum, affine and track_running_stats are as in
            torch.nn.BatchNorm2d.
        process_set: the ranks that normalise together. All of them must run this layer, forward and backward.

    Raises:
        ValueError: in forward, for input that is not [N, num_features, *] or not floating, for a single value
            per channel on all ranks together, or before ``hvd.init()`` in training.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    @classmethod
    def convert_sync_batchnorm(
        cls, module: torch.nn.Module, process_set: ProcessSet = global_process_set
    ) -> torch.nn.Module:
        """Return ``module`` with every BatchNorm1d, 2d and 3d in it replaced by a SyncBatchNorm.

        Parameters and buffers stay the same tensors, so an existing optimizer stays valid. The module is
        changed in place. If it is a BatchNorm itself, use the returned one in its place.

        Raises:
            ValueError: a lazy BatchNorm does not know its number of features yet.
        """
        return _converted(cls, module, process_set, {})

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if not self.training or not self._has_company():
            return super().forward(input)
        statistics = _statistics_of_all(input.detach(), self.process_set)
        if statistics.is_known and statistics.count == 1:
            raise errors.one_value(shape=tuple(input.shape))
        self._track(statistics)
        return cast(
            torch.Tensor,
            _Normalization.apply(
                input, self.weight, self.bias, statistics, float(self.eps), self.process_set
            ),
        )

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise errors.too_few_dimensions(dimensions=input.dim())
        if input.shape[1] != self.num_features:
            raise errors.wrong_features(features=self.num_features, shape=tuple(input.shape))
        if input.dtype not in FLOATING:
            raise errors.not_floating(dtype=str(input.dtype))

    def _has_company(self) -> bool:
        if basics.size() == 1:
            return False
        return self.process_set.size() != 1 or not self.process_set.included()

    def _track(self, statistics: Statistics) -> None:
        """Move the running statistics towards the batch's, as torch's BatchNorm does in its kernel."""
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        factor = self.momentum
        if self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if factor is None:  # all batches have equal weight
                factor = 1.0 / float(self.num_batches_tracked)
        if statistics.is_known and statistics.count == 0:
            return
        unbiased = statistics.var * (statistics.count / (statistics.count - 1))
        with torch.no_grad():
            for running, new in ((self.running_mean, statistics.mean), (self.running_var, unbiased)):
                running.mul_(1.0 - (factor or 0.0)).add_(new.to(running.dtype), alpha=factor or 0.0)


def _converted(
    cls: type[SyncBatchNorm],
    module: torch.nn.Module,
    process_set: ProcessSet,
    done: dict[torch.nn.Module, torch.nn.Module],
) -> torch.nn.Module:
    """Convert recursively. ``done`` maps modules, which may be in several places, to results."""
    if module not in done:
        done[module] = module
        if isinstance(module, _BatchNorm):
            done[module] = _from_batch_norm(cls, module, process_set)
        for name, child in module._modules.items():
            if child is not None:
                done[module]._modules[name] = _converted(cls, child, process_set, done)
    return done[module]


def _from_batch_norm(cls: type[SyncBatchNorm], module: _BatchNorm, process_set: ProcessSet) -> SyncBatchNorm:
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        raise errors.lazy_batch_norm()
    converted = cls(
        module.num_features,
        module.eps,
        module.momentum,
        module.affine,
        module.track_running_stats,
        process_set,
    )
    for name, parameter in module._parameters.items():
        converted.register_parameter(name, parameter)
    for name, buffer in module._buffers.items():
        converted.register_buffer(name, buffer, persistent=name not in module._non_persistent_buffers_set)
    return converted.train(module.training)


class _Normalization(OfItsJob):
    """Normalisation by given statistics, which depend on the input of every rank."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        statistics: Statistics,
        eps: float,
        process_set: ProcessSet,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, weight, statistics.mean, statistics.var)
        ctx.count, ctx.eps, ctx.process_set = statistics.count, eps, process_set
        ctx.bias_dtype = None if bias is None else bias.dtype
        return kernels.normalized(x, weight, bias, statistics, eps)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> Any:
        x, weight, mean, var = ctx.saved_tensors
        statistics = Statistics(mean, var, ctx.count)
        sum_dy, sum_dy_xhat = kernels.gradient_sums(dy, x, statistics, ctx.eps)
        dx = None
        if ctx.needs_input_grad[0]:  # frozen on all ranks, so without communication if not
            sums = _sums_of_all((sum_dy, sum_dy_xhat), ctx.process_set)
            dx = kernels.input_gradient(dy, x, weight, statistics, sums, ctx.eps)
        d_weight = sum_dy_xhat.to(weight.dtype) if ctx.needs_input_grad[1] else None
        d_bias = sum_dy.to(ctx.bias_dtype) if ctx.needs_input_grad[2] else None
        return dx, d_weight, d_bias, None, None, None


# Communication. The core caches requests by name, so names contain the number of channels: layers of
# different widths would evict each other.


def _statistics_of_all(x: torch.Tensor, process_set: ProcessSet) -> Statistics:
    mean, var = kernels.moments(x)
    own = _packed([mean, var, mean.new_full((1,), kernels.count_of(x), dtype=torch.float64)])
    name = f"sync_batch_norm.forward.{x.shape[1]}"
    handle = allgather_async(own.unsqueeze(0), name=name, process_set=process_set)
    gathered = cast(torch.Tensor, synchronize(handle))
    # Only a total of one value is an error, so a rank with two values need not know the total.
    waits = devices.device_of(x) == devices.CPU or kernels.count_of(x) < 2
    return _combined(gathered, kernels.statistics_dtype(x.dtype), waits)


def _combined(gathered: torch.Tensor, dtype: torch.dtype, is_known: bool) -> Statistics:
    """Combine a row per rank of means, variances and a count, by Chan, Golub and LeVeque 1979."""
    counts = gathered[:, -1:]
    means, variances = gathered[:, :-1].tensor_split(2, dim=1)
    total = counts.sum()
    shares = counts / total.clamp(min=1)
    mean = (shares * means).sum(0)
    var = (shares * (variances + (means - mean).square())).sum(0)
    return Statistics(mean.to(dtype), var.to(dtype), int(total) if is_known else total)


def _sums_of_all(
    own: tuple[torch.Tensor, torch.Tensor], process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor]:
    like = own[0]
    name = f"sync_batch_norm.backward.{len(like)}"
    handle = allreduce_async_(_packed(own), name=name, op=Sum, process_set=process_set)
    summed = cast(torch.Tensor, synchronize(handle))
    sum_dy, sum_dy_xhat = summed.to(like.dtype).tensor_split(2)
    return sum_dy, sum_dy_xhat


def _packed(vectors: Iterable[torch.Tensor]) -> torch.Tensor:
    return torch.cat([vector.to(torch.float64) for vector in vectors])
