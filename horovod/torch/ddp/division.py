"""Divides a bucket's gradients by the number of ranks, bit for bit as DDP does without a hook.

DDP multiplies by 1/n when it copies a gradient into its bucket. With gradient_as_bucket_view a gradient kept
from the last step lies there already, and is divided by n. The results differ unless n is a power of two. A
hook gets the bucket when all gradients lie in it.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def gradients_in(bucket: dist.GradBucket) -> list[torch.Tensor]:  # type: ignore[name-defined]
    """Return the bucket's gradients, one view for each parameter; complex ones as pairs of reals.

    The buffer has the pairs, while torch's views of it count complex elements.
    """
    buffer, views = bucket.buffer(), bucket.gradients()
    gradients = []
    for parameter, view in zip(bucket.parameters(), views, strict=True):
        if parameter.is_complex():
            begin = 2 * (view.storage_offset() - buffer.storage_offset())
            view = buffer[begin : begin + 2 * view.numel()].view(*view.shape, 2)
        gradients.append(view)
    return gradients


class Division:
    """Divides the buckets of one model."""

    def __init__(self) -> None:
        # by id of a parameter, the address at which its gradient was accumulated
        self._lay_at: dict[int, int] = {}

    def divide(self, bucket: dist.GradBucket, count: int) -> None:  # type: ignore[name-defined]
        """Divide the bucket's elements by ``count`` in place, as DDP does without a hook."""
        buffer = bucket.buffer()
        if buffer.is_sparse:
            buffer.div_(count)
        elif count & (count - 1) == 0:
            buffer.mul_(1.0 / count)
        else:
            for parameter, view in zip(bucket.parameters(), gradients_in(bucket), strict=True):
                if self._was_in_place(parameter, view):
                    view.div_(count)
                else:
                    view.mul_(1.0 / count)

    def _was_in_place(self, parameter: Any, view: torch.Tensor) -> bool:
        """Return whether a parameter's gradient was accumulated in the bucket itself."""
        address, gradient = view.data_ptr(), parameter.grad
        if gradient is None or gradient.data_ptr() != address:
            return False  # no gradient_as_bucket_view, or no gradient
        if not parameter.requires_grad:
            return True  # frozen meanwhile, so it lay there before
        before = self._lay_at.get(id(parameter))
        if before is None:
            lay_at = self._lay_at

            def note(accumulated: torch.Tensor) -> None:
                if accumulated.grad is not None:
                    lay_at[id(accumulated)] = accumulated.grad.data_ptr()

            parameter.register_post_accumulate_grad_hook(note)
        self._lay_at[id(parameter)] = address
        return before == address


def ranks_with_input(model: DistributedDataParallel | None, group: dist.ProcessGroup, device: Any) -> int:
    """Return the number of ranks by which a step's gradients are divided.

    It is all ranks, or inside ``model.join(divide_by_initial_world_size=False)`` those with input. Collective
    there.
    """
    joining = getattr(model, "_join_config", None)
    if joining is None or not joining.enable or getattr(model, "_divide_by_initial_world_size", True):
        return group.size()
    # A rank without further inputs calls the hook itself, outside of any backward pass.
    has_input = torch._C._current_graph_task_id() != -1
    count = torch.tensor([int(has_input)], device=device)
    dist.all_reduce(count, group=group)
    return int(count.item())
