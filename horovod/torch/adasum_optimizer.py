"""DistributedOptimizer with op=Adasum: ranks combine their optimizer steps instead of their gradients.

When a parameter's gradient is due, the wrapped optimizer makes its step for that parameter alone, with the
local gradient. The change (the delta) is Adasum-allreduced while the backward pass continues, and the
parameter gets its old value back. ``step()`` waits for the deltas and adds them. The optimizer's state
(momentum) stays local and differs by rank.

Adasum: Maleki et al., "Scaling Distributed Training with Adaptive Summation", 2020, arXiv:2006.02924.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.exceptions import WrongUse
from horovod.torch import errors
from horovod.torch.compiling import breaks_graphs
from horovod.torch.optimizer_front import OptimizerFront


class DistributedAdasumOptimizer(OptimizerFront):
    """A mixin placed before the user's optimizer class, which ``super()`` therefore is."""

    _group_number: dict[torch.Tensor, int]

    def _begin(self) -> None:
        if isinstance(self, torch.optim.LBFGS):
            raise errors.adasum_lbfgs()
        super()._begin()

    def _listen_to_new_parameters(self) -> None:
        super()._listen_to_new_parameters()
        self._group_number = {p: i for i, entry in enumerate(self.param_groups) for p in entry["params"]}

    def _start(self, members: list[torch.Tensor]) -> None:
        deltas = [self._local_delta(parameter) for parameter in members]
        names = [self._parameter_names[parameter] for parameter in members]
        entries = list(zip(names, members, deltas, strict=True))
        reduction = self._reducer.start_dense(entries, grouped=self._life.is_grouped(members[0]))
        for parameter, delta in zip(members, deltas, strict=True):
            self._handles[parameter] = (reduction, delta)

    @torch.no_grad()
    def _local_delta(self, parameter: torch.Tensor) -> torch.Tensor:
        """Return the change that the wrapped optimizer's step would make to a parameter.

        The parameter is restored.
        """
        if parameter.grad is None or parameter not in self._group_number:
            return torch.zeros_like(parameter)
        # SparseAdam's step takes sparse gradients only. Its delta is dense.
        wants_sparse = isinstance(self, torch.optim.SparseAdam)
        if parameter.grad.is_sparse and self.sparse_as_dense and not wants_sparse:
            parameter.grad = parameter.grad.to_dense()
        start = parameter.detach().clone()
        with self._holding_only(parameter):
            self._step_of_wrapped_class()
        delta = parameter.detach() - start
        parameter.copy_(start)
        return delta

    @contextmanager
    def _holding_only(self, parameter: torch.Tensor) -> Iterator[None]:
        """Inside the block the optimizer has one parameter, in its group."""
        every_group = self.param_groups
        entry = every_group[self._group_number[parameter]]
        every_parameter = entry["params"]
        self.param_groups, entry["params"] = [entry], [parameter]
        try:
            yield
        finally:
            self.param_groups, entry["params"] = every_group, every_parameter

    def _step_of_wrapped_class(self) -> None:
        """Make a step without the user's step hooks, which belong to the step of all parameters."""
        step: Any = super().step.__func__  # type: ignore[attr-defined]
        if getattr(step, "hooked", False):
            step = step.__wrapped__
        step(self)

    def _gradients_changed(self, names: list[str]) -> WrongUse:
        return errors.adasum_gradient_changed(names=names, ranks=[basics.rank()])

    def _before_unscaling(self) -> None:
        if self._handles:
            raise errors.adasum_unscaled(ranks=[basics.rank()])

    def synchronize(self) -> None:
        """Do nothing: there are no reduced gradients before the step."""

    def skip_synchronize(self) -> Any:
        """Raise AssertionError: the reduction of steps cannot be skipped."""
        raise errors.adasum_synchronizes()

    @breaks_graphs
    @torch.optim.Optimizer.profile_hook_step
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Add the Adasum of all ranks' steps to every parameter. Returns what ``closure`` returns, or None.

        The local steps were made when gradients were due. Gradients of ``closure`` are reduced too.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._note_step()
        self._check_names_agree()
        for members in self._not_started():
            self._start_and_note(members)
        deltas = {parameter: delta for parameter, (_, delta) in self._handles.items()}
        self._wait()
        with torch.no_grad():
            for parameter, delta in deltas.items():
                parameter.add_(delta)
        self._note_end_of_step()
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # or torch would wrap it again, in load_state_dict
