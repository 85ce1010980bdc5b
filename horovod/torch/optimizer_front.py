"""The methods of all distributed optimizers other than the step: zero_grad, checkpoints, copies.

PyTorch's GradScaler waits for reductions before it unscales gradients. It changes gradients in place without
raising their versions, so the change cannot be detected later. This module wraps both methods that do so:
``torch.amp.GradScaler.unscale_``, which ``step`` calls if the script has not, and ``_check_inf_per_device``,
for optimizers that unscale by themselves (``fused=True``). Both take the optimizer as their first argument.
"""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from typing import Any

import torch

from horovod.common.elastic import is_elastic
from horovod.torch import errors, shared_parameters
from horovod.torch.compiling import breaks_graphs
from horovod.torch.gradient_listener import GradientListener
from horovod.torch.parameters import checked_passes

UNSCALING = ("unscale_", "_check_inf_per_device")


class OptimizerFront(GradientListener):
    """A mixin placed before the user's optimizer class; ``super()`` of a subclass is that class."""

    def _begin(self) -> None:
        super()._begin()
        if self._active or is_elastic():
            settle_before_unscaling()

    @breaks_graphs
    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """Call the wrapped optimizer's zero_grad, and give up a step that was not made.

        AssertionError while gradients are being reduced, or are yet to be.
        """
        self._thread = threading.get_ident()
        if self._active:
            self._missing.settle_before_zeroing()
        reductions = [reduction for reduction, _ in self._handles.values()]
        is_early = reductions and not any(reductions) and self._extra is None
        if self._step.in_flight() or is_early:
            raise errors.zeroed_too_early()
        self._forget_reduced()
        self._is_settled = False
        shared_parameters.forget(self)
        super().zero_grad(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """Return the wrapped optimizer's state_dict with "horovod": residuals and compressors' memory.

        Residuals are this rank's, or every rank's after ``consolidate_residuals``. AssertionError while
        gradients with residuals are being reduced.
        """
        self._check_residuals_rest("state_dict")
        saved: dict[str, Any] = super().state_dict()
        own = self._reducer.checkpoint.state_dict()
        return {**saved, "horovod": own} if own else saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Call the wrapped optimizer's load_state_dict. Counting of backward passes starts again.

        Residuals start again from zero unless the checkpoint has this rank's, of the same number of ranks.
        """
        self._begin_step()
        self._wait()
        super().load_state_dict(state_dict)
        self._reducer.checkpoint.load_state_dict(state_dict.get("horovod"), self._parameter_names.values())

    def _check_residuals_rest(self, called: str) -> None:
        if self._reducer.in_flight and self._reducer.residuals:
            raise errors.feedback_in_use(called=called)

    def consolidate_residuals(self, to: int = 0) -> None:
        """Gather the residuals of all ranks on rank ``to``. Collective; call it between steps.

        state_dict() of ``to`` then has them until gradients are reduced again.
        """
        self._check_residuals_rest("consolidate_residuals")
        self._reducer.checkpoint.consolidate(to)

    def set_loss_scale(self, scale: Any) -> None:
        """Set the factor of the loss before backward: a number, or the GradScaler that has it.

        Residuals are rescaled at the next reduction. ValueError unless it is finite and above 0. With a
        scaler on a GPU the host waits for the scale in every step, as in scaler.step().
        """
        self._reducer.residuals.follow(scale)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set the number of backward passes before gradients are reduced. Counting starts again.

        ValueError unless it is 1 or more.
        """
        self.backward_passes_per_step = self._life.passes = checked_passes(passes)
        self._life.end_step()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Return a copy that listens to the copies of the parameters. Objects of the job are shared."""
        self._check_residuals_rest("__deepcopy__")
        inner_class = next(cls for cls in type(self).__mro__ if not issubclass(cls, GradientListener))
        inner = object.__new__(inner_class)
        own = {name: value for name, value in vars(self).items() if name not in _own_attributes(type(self))}
        inner.__dict__.update(own)
        options = {
            "named_parameters": [(name, p) for p, name in self._parameter_names.items()],
            "groups": self._life.groups() or None,
        }
        wrapped = self._wrap_again(copy.deepcopy(inner, memo), **copy.deepcopy(options, memo))
        wrapped.set_backward_passes_per_step(self.backward_passes_per_step)
        wrapped.__class__ = type(self)
        wrapped._reducer.go_on_from(self._reducer)
        memo[id(self)] = wrapped
        return wrapped

    def __reduce__(self) -> Any:
        raise errors.not_pickled()


def _own_attributes(cls: type) -> set[str]:
    """Return the instance attributes that are not the wrapped optimizer's."""
    ours = (base for base in cls.__mro__ if issubclass(base, GradientListener))
    return {"step", *(name for base in ours for name in inspect.get_annotations(base))}


def settle_before_unscaling() -> None:
    """Make all scalers wait for a DistributedOptimizer's gradients. Idempotent."""
    for name in UNSCALING:
        original = getattr(torch.amp.GradScaler, name)
        if not hasattr(original, "_horovod_original"):
            setattr(torch.amp.GradScaler, name, _settling(original))


def _settling(original: Any) -> Any:
    @functools.wraps(original)
    def settle_first(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        settle = getattr(optimizer, "_before_unscaling", None)
        if settle is not None and scaler.is_enabled():
            settle()
        return original(scaler, optimizer, *args, **kwargs)

    settle_first._horovod_original = original  # type: ignore[attr-defined]
    return settle_first
