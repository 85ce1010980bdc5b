"""The arithmetic of a batch normalisation with given statistics, by torch's own kernels.

Input is [N, C, *]. Statistics and sums are vectors [C], float64 for float64 input and float32 for any other.
With x̂ = (x − mean) / sqrt(var + eps), y = weight·x̂ + bias, and means over the batch of all ranks, the
gradient (Ioffe and Szegedy 2015, arXiv:1502.03167) is

    dx = weight / sqrt(var + eps) · (dy − mean(dy) − x̂·mean(dy·x̂))

On CUDA the kernels are those of torch.nn.SyncBatchNorm, which accept half precision. The CPU kernels would
return half-precision statistics too, so the CPU works in the statistics' dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import torch
from torch.nn import functional


@dataclass(frozen=True)
class Statistics:
    """The statistics of the batch of all ranks. ``var`` is biased."""

    mean: torch.Tensor
    var: torch.Tensor
    count: int | torch.Tensor  # values per channel; a tensor, of at least 2, if the host does not know it

    @property
    def is_known(self) -> bool:
        """Return whether the host knows the count."""
        return isinstance(self.count, int)


def statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def count_of(x: torch.Tensor) -> int:
    """Return the number of values per channel."""
    return x.shape[0] * prod(x.shape[2:])


def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the mean and the biased variance of each channel; zeros for an empty batch."""
    dtype = statistics_dtype(x.dtype)
    if x.numel() == 0:
        return x.new_zeros(x.shape[1], dtype=dtype), x.new_zeros(x.shape[1], dtype=dtype)
    mean, var = torch.batch_norm_update_stats(x if _on_cuda(x) else x.to(dtype), None, None, 0.0)
    return mean, var


def normalized(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    statistics: Statistics,
    eps: float,
) -> torch.Tensor:
    """Return weight·x̂ + bias, in the dtype and memory format of ``x``."""
    if x.numel() == 0:
        return torch.empty_like(x)
    mean, var = statistics.mean, statistics.var
    scale, shift = _as(mean, weight), _as(mean, bias)
    if _on_cuda(x):
        invstd = torch.rsqrt(var + eps)
        return torch.batch_norm_elemt(_dense(x), scale, shift, mean, invstd, eps)
    return functional.batch_norm(x.to(mean.dtype), mean, var, scale, shift, False, 0.0, eps).to(x.dtype)


def gradient_sums(
    dy: torch.Tensor, x: torch.Tensor, statistics: Statistics, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sums of dy and of dy·x̂ over this rank's batch: the gradients of bias and weight."""
    mean, var = statistics.mean, statistics.var
    if x.numel() == 0:
        return torch.zeros_like(mean), torch.zeros_like(mean)
    if _on_cuda(x):
        invstd = torch.rsqrt(var + eps)
        sum_dy, sum_dy_xmu, _, _ = torch.batch_norm_backward_reduce(
            _dense(dy), _dense(x), mean, invstd, None, True, False, False
        )
        return sum_dy, sum_dy_xmu * invstd
    # As in eval mode, in which mean and variance do not depend on x either.
    _, sum_dy_xhat, sum_dy = torch.ops.aten.native_batch_norm_backward(
        dy.to(mean.dtype),
        x.to(mean.dtype),
        torch.ones_like(mean),
        mean,
        var,
        None,
        None,
        False,
        eps,
        [False, True, True],
    )
    return sum_dy, sum_dy_xhat


def input_gradient(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor | None,
    statistics: Statistics,
    sums: tuple[torch.Tensor, torch.Tensor],
    eps: float,
) -> torch.Tensor:
    """Return dx, from ``sums`` of dy and of dy·x̂ over the batch of all ranks."""
    if x.numel() == 0:
        return torch.empty_like(x)
    mean, var, count = statistics.mean, statistics.var, statistics.count
    sum_dy, sum_dy_xhat = sums
    invstd = torch.rsqrt(var + eps)
    scale = _as(mean, weight)
    if _on_cuda(x):
        counts = torch.as_tensor(count, device=x.device).to(torch.int32).reshape(1)
        return torch.batch_norm_backward_elemt(
            _dense(dy), _dense(x), mean, invstd, scale, sum_dy, sum_dy_xhat / invstd, counts
        )
    factor = invstd if scale is None else scale * invstd
    # −factor·(mean(dy) + x̂·mean(dy·x̂)) is a normalisation itself, for torch's fused kernel.
    dx = functional.batch_norm(
        x.to(mean.dtype),
        mean,
        var,
        sum_dy_xhat * factor / -count,
        sum_dy * factor / -count,
        False,
        0.0,
        eps,
    )
    by_channel = factor.reshape(-1, *(1 for _ in x.shape[2:]))
    return dx.addcmul_(dy.to(mean.dtype), by_channel).to(x.dtype)


def _on_cuda(x: torch.Tensor) -> bool:
    return x.is_cuda


def _as(like: torch.Tensor, parameter: torch.Tensor | None) -> torch.Tensor | None:
    return None if parameter is None else parameter.to(like.dtype)


def _dense(x: torch.Tensor) -> torch.Tensor:
    """Return ``x`` in a memory format that the CUDA kernels accept."""
    if x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last):
        return x
    if x.dim() == 5 and x.is_contiguous(memory_format=torch.channels_last_3d):
        return x
    return x.contiguous()
