"""Compression to the largest elements, with their positions."""

from __future__ import annotations

import math
from typing import Any

import torch

from horovod.torch import devices
from horovod.torch.compression import errors
from horovod.torch.compression.configured import MIN_ELEMENTS, ConfiguredCompressor, method_on_class_too

DEFAULT_RATIO = 0.01


class TopKCompressor(ConfiguredCompressor):
    """Sends the k elements of largest magnitude and their positions. All others become zero.

    Codes are one uint8 tensor: k values (float32; float64 of float64 tensors), then k indices into the
    flattened tensor in ascending order (int32; int64 beyond 2^31 elements). Of equal magnitudes the first are
    taken, and NaN counts as the largest. DistributedOptimizer adds the omitted elements to the next gradient
    (``error_feedback``); without it most of a gradient would never be applied.

    Args:
        ratio: k as a share of the elements, above 0 and up to 1, rounded up.
        k: the number of elements, instead of a ratio. Of smaller tensors all are sent.
        error_feedback: see Compressor.
        min_elements: see Compressor.

    Raises:
        ValueError: an option has a value that is not allowed, or both ratio and k are given.
    """

    combine = "gather"
    error_feedback = True

    def __init__(
        self,
        *,
        ratio: float = DEFAULT_RATIO,
        k: int | None = None,
        error_feedback: bool = True,
        min_elements: int | None = MIN_ELEMENTS,
    ) -> None:
        super().__init__(error_feedback=error_feedback, min_elements=min_elements)
        if isinstance(ratio, bool) or not isinstance(ratio, float | int) or not 0 < ratio <= 1:
            raise errors.wrong_ratio(value=ratio)
        if k is not None:
            self.require_integer("k", k, 1)
            if ratio != DEFAULT_RATIO:
                raise errors.ratio_and_k(ratio=ratio, k=k)
        self.ratio, self.k = float(ratio), k

    def kept(self, count: int) -> int:
        """Return how many of ``count`` elements are sent."""
        return min(count, math.ceil(self.ratio * count) if self.k is None else self.k)

    @method_on_class_too
    def compress(self, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:  # type: ignore[override]
        """Return the codes of a floating-point tensor of any shape, 1-D uint8. Others stay unchanged."""
        if not tensor.is_floating_point():
            return tensor, None
        flat = tensor.detach().reshape(-1).to(_value_dtype(tensor.dtype))
        positions = _largest(flat, self.kept(flat.numel()))
        indices = positions.to(_index_dtype(flat.numel()))
        codes = torch.cat([flat[positions].view(torch.uint8), indices.view(torch.uint8)])
        return codes, (tensor.dtype, tensor.shape)

    @method_on_class_too
    def decompress(self, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:  # type: ignore[override]
        """Return a tensor of zeros with the sent elements at their positions."""
        if ctx is None:
            return tensor
        dtype, shape = ctx
        total = torch.zeros(shape, dtype=_value_dtype(dtype), device=tensor.device)
        self.decompress_add(tensor, ctx, total)
        return total.to(dtype)

    @method_on_class_too
    def decompress_add(self, tensor: torch.Tensor, ctx: Any, total: torch.Tensor) -> None:
        """Add the decoded elements to ``total`` (contiguous, float32 or float64).

        ValueError if they are not codes of a tensor of that shape.
        """
        dtype, shape = ctx
        value_dtype, index_dtype = _value_dtype(dtype), _index_dtype(shape.numel())
        each = value_dtype.itemsize + index_dtype.itemsize
        count, rest = divmod(tensor.numel(), each)
        if tensor.dtype != torch.uint8 or rest or count > shape.numel():
            raise errors.no_topk_codes(
                elements=tensor.numel(), dtype=str(tensor.dtype), of=shape.numel(), each=each
            )
        cut = count * value_dtype.itemsize
        values = tensor[:cut].clone().view(value_dtype)
        positions = tensor[cut:].clone().view(index_dtype).long()
        if devices.device_of(tensor) != devices.CPU:
            # A check would make the host wait for the GPU, and a position outside would end every later use
            # of it. So such a value becomes NaN, at position 0.
            is_inside = (positions >= 0) & (positions < shape.numel())
            values, positions = torch.where(is_inside, values, math.nan), torch.where(is_inside, positions, 0)
        elif count and not (int(positions.min()) >= 0 and int(positions.max()) < shape.numel()):
            raise errors.position_outside(shape=list(shape))
        total.view(-1).index_add_(0, positions, values.to(total.dtype))


def _value_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


def _index_dtype(count: int) -> torch.dtype:
    return torch.int32 if count <= 2**31 else torch.int64


def _largest(flat: torch.Tensor, count: int) -> torch.Tensor:
    """Return the positions of the ``count`` largest magnitudes, ascending; of equal ones the first.

    Without its sign bit a float is ordered as the integer of the same bits, with NaN above infinity.
    torch.topk takes any of equal elements, but the smallest of its values is certain.
    """
    bits = torch.int64 if flat.dtype == torch.float64 else torch.int32
    magnitudes = flat.view(bits).bitwise_and(torch.iinfo(bits).max)
    if count == 0 or count == flat.numel():
        return torch.arange(count, device=flat.device)
    least = torch.topk(magnitudes, count, sorted=False).values.min()
    if devices.device_of(flat) != devices.CPU:
        return _largest_of_known_number(magnitudes, least, count)
    above = torch.nonzero(magnitudes > least).reshape(-1)
    equal = torch.nonzero(magnitudes == least).reshape(-1)[: count - above.numel()]
    return torch.cat([above, equal]).sort().values


def _largest_of_known_number(magnitudes: torch.Tensor, least: torch.Tensor, count: int) -> torch.Tensor:
    """Like ``_largest``, without waiting for the GPU to report a number of elements."""
    above, equal = magnitudes > least, magnitudes == least
    taken = above | (equal & (equal.cumsum(0) <= count - above.sum()))
    # The i-th element taken writes its position to i. All others write to an additional last element.
    targets = torch.where(taken, taken.cumsum(0) - 1, count)
    positions = targets.new_empty(count + 1)
    return positions.scatter_(0, targets, torch.arange(len(targets), device=targets.device))[:count]
