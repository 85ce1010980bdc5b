"""Avoids DDP's copies of gradients into buckets: gradients are encoded from the tensors that backward made.

With gradient_as_bucket_view a parameter's gradient is a view of its bucket. If none is kept from the last
step, backward still makes a new tensor, which DDP copies into the view: one more read and write of all
gradients. But the view only has to receive the average. So when a large gradient is complete, and before DDP
sees it, this module replaces it by the view, without valid content, and keeps the gradient itself until its
bucket is reduced.

Only a bucket shows that a backward pass is for DDP to reduce: parameters may belong to several models, and
`no_sync()` reduces nothing. So DDP copies the gradients of each pass' first bucket. A gradient must be
complete when it is first seen, which is not so in a static graph: there it may come in several parts.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
import torch.distributed as dist

from horovod.torch import devices
from horovod.torch.ddp.division import gradients_in

# glibc's malloc takes memory of this size from the system, and returns it each time. Smaller memory is reused
# for the next gradient once DDP has copied it. Keeping it would take new pages, which the system clears
# first: that costs more than the copy.
LEAST_BYTES = 1 << 25


class Originals:
    """The gradients of one model's backward pass that DDP has not copied. For one thread at a time."""

    def __init__(self) -> None:
        # by parameter, the bucket view of its last gradient
        self._views: dict[torch.Tensor, torch.Tensor] = {}
        self._kept: dict[torch.Tensor, torch.Tensor] = {}  # by parameter, its gradient in this pass
        self._pass = -1  # autograd's graph task that reduces the model's gradients now, or the last one
        self._end: weakref.ref[Callable[[], None]] | None = None  # of that pass
        self._passes = 0

    def take(self, bucket: dist.GradBucket) -> list[torch.Tensor | None]:  # type: ignore[name-defined]
        """Return the kept original of each of the bucket's gradients; None if the bucket has it.

        Averages must be written to the bucket, which lacks kept gradients. All later buckets of this pass
        must be taken as well, as their gradients may be kept.
        """
        self._follow_pass()
        taken = []
        for parameter, view in zip(bucket.parameters(), gradients_in(bucket), strict=True):
            taken.append(self._kept.pop(parameter, None))
            if self._passes > 1:  # after the first pass DDP moves its buckets
                self._expect(parameter, view)
        return taken

    def stop(self) -> None:
        """Keep no more gradients. Must not be called in a pass whose gradients are kept."""
        self._views.clear()
        self._kept.clear()

    def _follow_pass(self) -> None:
        now = torch._C._current_graph_task_id()
        if now == self._pass:
            return
        if self._end is None or self._end() is None:
            self._kept.clear()  # that pass has failed, and its gradients are not used
        # Otherwise this pass is nested in that one.
        self._pass, self._end = now, None
        self._passes += 1
        if now >= 0:

            def end() -> None:
                self._copy_rest()

            self._end = weakref.ref(end)  # dead if the pass fails
            torch.autograd.Variable._execution_engine.queue_callback(end)

    def _expect(self, parameter: torch.Tensor, view: torch.Tensor) -> None:
        """Allow that the parameter's next gradient is kept."""
        is_large = view.nbytes >= LEAST_BYTES and devices.device_of(view) == devices.CPU
        if is_large and parameter.requires_grad and _is_at(parameter.grad, view):
            if parameter not in self._views:
                parameter.register_post_accumulate_grad_hook(_Watch(self))  # type: ignore[no-untyped-call]
            self._views[parameter] = view

    def keep(self, parameter: torch.Tensor) -> None:
        """Replace a complete gradient by its view, if only DDP reads it meanwhile."""
        gradient, view = parameter.grad, self._views.get(parameter)
        if gradient is None or view is None or _is_at(gradient, view):
            return
        is_ours = self._pass == torch._C._current_graph_task_id() >= 0
        is_alike = gradient.stride() == view.stride() and gradient.dtype == view.dtype
        hooks = parameter._post_accumulate_grad_hooks.values()
        is_watched = not all(isinstance(hook, _Watch) for hook in hooks)
        if is_ours and is_alike and not is_watched and not gradient.requires_grad:
            self._kept[parameter] = gradient
            parameter.grad = view

    def _copy_rest(self) -> None:
        """After the pass, copy gradients that DDP has not reduced, as their bucket is incomplete."""
        while self._kept:
            parameter, gradient = self._kept.popitem()
            if parameter.grad is not None:
                with torch.no_grad():
                    parameter.grad.copy_(gradient)


class _Watch:
    """A hook of a parameter, which may outlive the object that registered it."""

    def __init__(self, originals: Originals) -> None:
        self._originals = weakref.ref(originals)

    def __call__(self, parameter: torch.Tensor) -> None:
        originals = self._originals()
        if originals is not None:
            originals.keep(parameter)


def _is_at(gradient: torch.Tensor | None, view: torch.Tensor) -> bool:
    return gradient is not None and gradient.data_ptr() == view.data_ptr()
