"""Spares DDP its copies of gradients into buckets: they are encoded from where the backward pass made them.

With gradient_as_bucket_view a parameter's gradient is a view of its bucket. Where none was kept from the step
before, backward makes a new one all the same, which DDP copies into the view: all of a model's gradients are
read and written once more. But the average goes to the view, and nothing else needs the copy. So when a large
gradient is complete, before DDP sees it, the view takes its place, with nothing in it yet, and the gradient
itself is kept until its bucket is reduced.

Only a bucket tells that a backward pass is this model's, for DDP to reduce: parameters may be another model's
too, and in `no_sync()` nothing is reduced. So DDP copies those of each pass' first bucket. And a gradient has
to be complete when it is first seen: in a static graph a parameter's may come in several parts, each added to
what lies in its place.
"""

from __future__ import annotations

import weakref

import torch
import torch.distributed as dist

from horovod.torch import devices
from horovod.torch.ddp.division import gradients_in

__all__ = ["LEAST_BYTES", "Originals"]

# Of a gradient: so much glibc's malloc takes from the system and gives back each time. What is smaller it
# uses again for the next gradient, once DDP has copied it. Kept instead, each would take pages that the
# system has to clear first, which costs more than the copy.
LEAST_BYTES = 1 << 25


class Originals:
    """The gradients of one model's backward pass that DDP has not copied. Used by one thread at a time."""

    def __init__(self) -> None:
        self._views: dict[torch.Tensor, torch.Tensor] = {}  # by parameter, where its last gradient lay
        self._kept: dict[torch.Tensor, torch.Tensor] = {}  # by parameter, its gradient in this pass
        self._pass = -1  # which of autograd's graph tasks reduces the model's gradients, or did last
        self._end: weakref.ref[_End] | None = None  # of that pass
        self._passes = 0

    def take(self, bucket: dist.GradBucket) -> list[torch.Tensor | None]:  # type: ignore[name-defined]
        """The kept original of each of the bucket's gradients; if that is None, the bucket has it.

        Averages must go to the bucket, which has nothing of those that were kept. Gradients may be kept for
        all buckets that follow in this pass, which must be taken as well.
        """
        self._follow_pass()
        taken = []
        for parameter, view in zip(bucket.parameters(), gradients_in(bucket), strict=True):
            taken.append(self._kept.pop(parameter, None))
            if self._passes > 1:  # after the first one DDP puts its buckets elsewhere
                self._expect(parameter, view)
        return taken

    def stop(self) -> None:
        """Keep none any more. Not called in a pass of which gradients are kept."""
        self._views.clear()
        self._kept.clear()

    def _follow_pass(self) -> None:
        now = torch._C._current_graph_task_id()
        if now == self._pass:
            return
        if self._end is None or self._end() is None:
            self._kept.clear()  # that pass has failed: nobody asks for its gradients
        # Otherwise this pass is inside that one.
        self._pass, self._end = now, None
        self._passes += 1
        if now >= 0:
            end = _End(self)
            self._end = weakref.ref(end)
            torch.autograd.Variable._execution_engine.queue_callback(end)

    def _expect(self, parameter: torch.Tensor, view: torch.Tensor) -> None:
        """Let the parameter's next gradient be kept."""
        is_large = view.nbytes >= LEAST_BYTES and devices.device_of(view) == devices.CPU
        if is_large and parameter.requires_grad and _is_at(parameter.grad, view):
            if parameter not in self._views:
                parameter.register_post_accumulate_grad_hook(_Watch(self))  # type: ignore[no-untyped-call]
            self._views[parameter] = view

    def keep(self, parameter: torch.Tensor) -> None:
        """The gradient is complete: its view takes its place, if nobody but DDP looks at it meanwhile."""
        gradient, view = parameter.grad, self._views.get(parameter)
        if gradient is None or view is None or _is_at(gradient, view):
            return
        is_ours = self._pass == torch._C._current_graph_task_id() >= 0
        is_alike = gradient.stride() == view.stride() and gradient.dtype == view.dtype
        is_watched = not all(isinstance(hook, _Watch) for hook in _hooks_of(parameter))
        if is_ours and is_alike and not is_watched and not gradient.requires_grad:
            self._kept[parameter] = gradient
            parameter.grad = view

    def copy_rest(self) -> None:
        """The pass is over. What DDP has not reduced, as its bucket is incomplete, is where DDP has it."""
        while self._kept:
            parameter, gradient = self._kept.popitem()
            if parameter.grad is not None:
                with torch.no_grad():
                    parameter.grad.copy_(gradient)


class _End:
    """Called by autograd at the end of a backward pass, and let go of where that fails."""

    def __init__(self, originals: Originals) -> None:
        self._originals = originals

    def __call__(self) -> None:
        self._originals.copy_rest()


class _Watch:
    """A hook of a parameter, which outlives who has registered it."""

    def __init__(self, originals: Originals) -> None:
        self._originals = weakref.ref(originals)

    def __call__(self, parameter: torch.Tensor) -> None:
        originals = self._originals()
        if originals is not None:
            originals.keep(parameter)


def _hooks_of(parameter: torch.Tensor) -> list[object]:
    return list(parameter._post_accumulate_grad_hooks.values())


def _is_at(gradient: torch.Tensor | None, view: torch.Tensor) -> bool:
    return gradient is not None and gradient.data_ptr() == view.data_ptr()
