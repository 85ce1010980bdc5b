"""Spares DDP its copies of gradients into buckets: they are encoded from where the backward pass made them.

With gradient_as_bucket_view a parameter's gradient is a view of its bucket. Where none was kept from the step
before, backward makes a new one all the same, which DDP copies into the view: all of a model's gradients are
read and written once more. But the average goes to the view, and nothing else needs the copy. So when a large
gradient is complete, before DDP sees it, the view takes its place, with nothing in it yet, and the gradient
itself is kept until its bucket is reduced.

Whatever is not reduced after all, as in `no_sync()`, is copied where DDP would have had it, at the latest
when the backward pass ends.
"""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist

from horovod.torch import devices

__all__ = ["LEAST_ELEMENTS", "Originals"]

LEAST_ELEMENTS = 1 << 16  # of a gradient. To copy fewer takes less time than not to


class Originals:
    """The gradients of one model's backward pass that DDP has not copied. Used by one thread at a time."""

    def __init__(self) -> None:
        self._watched: set[torch.Tensor] = set()  # parameters that call _keep
        self._views: dict[torch.Tensor, torch.Tensor] = {}  # by parameter, where its last gradient lay
        self._kept: dict[torch.Tensor, torch.Tensor] = {}  # by parameter, its gradient in this backward pass
        self._backward = -1  # which of autograd's graph tasks that is
        self._end: weakref.ref[_End] | None = None  # what lives as long as that task
        self._passes = 0

    def take(self, bucket: dist.GradBucket) -> list[torch.Tensor | None]:  # type: ignore[name-defined]
        """What was kept of each of the bucket's gradients; where that is None the bucket has it.

        Averages must go to the bucket, which has nothing of those that were kept. The next backward pass may
        keep gradients of these parameters.
        """
        self._follow_backward()
        taken = []
        for parameter, view in zip(bucket.parameters(), bucket.gradients(), strict=True):
            taken.append(self._kept.pop(parameter, None))
            self._expect(parameter, view)
        return taken

    def copy(self, bucket: dist.GradBucket) -> None:  # type: ignore[name-defined]
        """Have all of the bucket's gradients in the bucket."""
        self._follow_backward()
        for parameter, view in zip(bucket.parameters(), bucket.gradients(), strict=True):
            if (kept := self._kept.pop(parameter, None)) is not None:
                view.copy_(kept)

    def stop(self) -> None:
        """Keep none of later backward passes."""
        self._views.clear()

    def _expect(self, parameter: torch.Tensor, view: torch.Tensor) -> None:
        is_large = view.numel() >= LEAST_ELEMENTS and devices.device_of(view) == devices.CPU
        # After the first pass DDP puts its buckets elsewhere.
        if self._passes < 2 or not is_large or not _is_at(parameter.grad, view):
            return
        if parameter not in self._watched:
            self._watched.add(parameter)
            itself = weakref.ref(self)

            def accumulated(parameter: torch.Tensor) -> None:
                originals = itself()
                if originals is not None:
                    originals._keep(parameter)

            parameter.register_post_accumulate_grad_hook(accumulated)  # type: ignore[no-untyped-call]
        self._views[parameter] = view

    def _keep(self, parameter: torch.Tensor) -> None:
        """The gradient is complete: its view takes its place, if nobody but DDP will look at it before it is
        averaged.
        """
        gradient, view = parameter.grad, self._views.get(parameter)
        if gradient is None or view is None or _is_at(gradient, view):
            return
        self._follow_backward()
        is_alike = gradient.stride() == view.stride() and not gradient.requires_grad
        others_look = len(parameter._post_accumulate_grad_hooks) > 1
        if is_alike and not others_look and self._backward >= 0:
            self._kept[parameter] = gradient
            parameter.grad = view

    def _follow_backward(self) -> None:
        """What another pass has kept is copied, if this one is inside it, and forgotten if it has failed."""
        now = torch._C._current_graph_task_id()
        if now == self._backward:
            return
        if self._end is not None and self._end() is not None:
            self._copy_all()
        self._kept.clear()
        self._backward = now
        if now >= 0:
            end = _End(self)
            self._end = weakref.ref(end)
            torch.autograd.Variable._execution_engine.queue_callback(end)
            self._passes += 1

    def _copy_all(self) -> None:
        while self._kept:
            parameter, gradient = self._kept.popitem()
            if parameter.grad is not None:
                with torch.no_grad():
                    parameter.grad.copy_(gradient)


class _End:
    """What autograd calls at the end of a backward pass, and lets go of when that has failed as well."""

    def __init__(self, originals: Originals) -> None:
        self._originals = originals

    def __call__(self) -> None:
        self._originals._copy_all()


def _is_at(gradient: torch.Tensor | None, view: torch.Tensor) -> bool:
    return gradient is not None and gradient.data_ptr() == view.data_ptr()
