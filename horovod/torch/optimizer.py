"""DistributedOptimizer: gradients are reduced while the backward pass runs, and the step waits for them.

Life of a gradient: a hook fires when the backward pass has accumulated it; after ``backward_passes_per_step``
such passes its reduction starts, in place, by the parameter's name; ``synchronize`` waits. Every rank reduces
every parameter exactly once per step, those without a gradient as zeros, so ranks with different control flow
still match.
"""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression import Compression, CompressorLike
from horovod.torch.functions import broadcast_object
from horovod.torch.gradients import GradientReducer, Wait, wait_for_all
from horovod.torch.parameters import Groups, checked_groups, default_name, group_members, parameter_names
from horovod.torch.reduce_ops import Average

__all__ = ["DistributedOptimizer"]


class _DistributedOptimizer(torch.optim.Optimizer):
    """What is put in front of the user's optimizer class; ``super()`` is that class.

    Instances are made by DistributedOptimizer() only, which takes everything else over from the user's
    instance.
    """

    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    backward_passes_per_step: int
    _reducer: GradientReducer
    _parameter_names: dict[torch.Tensor, str]
    _groups: Groups | None
    _group_of: dict[torch.Tensor, list[torch.Tensor]]
    _requires_update: set[torch.Tensor]
    _allreduce_delay: dict[torch.Tensor, int]
    _handles: dict[torch.Tensor, tuple[Wait | None, Any]]
    _hooks: dict[torch.Tensor, Any]
    _active: bool
    _synchronized: bool
    _should_synchronize: bool

    def _begin(self) -> None:
        """Start to listen to gradients, if there is anybody to share them with."""
        self._group_of, self._requires_update, self._allreduce_delay = {}, set(), {}
        self._handles, self._hooks = {}, {}
        self._synchronized, self._should_synchronize = False, True
        self._active = basics.size() > 1 or os.environ.get("HOROVOD_ELASTIC") == "1"
        if not self._active:
            return
        weakref.finalize(self, _remove_hooks, self._hooks)
        self._listen_to_new_parameters()
        trainable = [p for p in self._all_parameters() if p in self._requires_update]
        if isinstance(self._groups, int):
            trainable = self._in_order_of_rank_0(trainable)
        for members in group_members(self._groups, trainable):
            self._group_of.update(dict.fromkeys(members, members))

    def _all_parameters(self) -> Iterator[torch.Tensor]:
        for entry in self.param_groups:
            yield from entry["params"]

    def _in_order_of_rank_0(self, trainable: list[torch.Tensor]) -> list[torch.Tensor]:
        by_name = {self._parameter_names[p]: p for p in trainable}
        return [by_name[name] for name in broadcast_object(list(by_name), root_rank=0)]

    def _listen_to_new_parameters(self) -> None:
        """Hook the parameters that have become trainable: at the start all, later those added or unfrozen."""
        for group, entry in enumerate(self.param_groups):
            for index, parameter in enumerate(entry["params"]):
                if parameter.requires_grad and parameter not in self._requires_update:
                    self._parameter_names.setdefault(parameter, default_name(group, index))
                    self._requires_update.add(parameter)
                    self._allreduce_delay[parameter] = self.backward_passes_per_step
                    hook = _hook_for(weakref.ref(self))
                    self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(hook)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if self._allreduce_delay[parameter] <= 0:
            raise AssertionError(
                f"Gradients of {self._parameter_names[parameter]!r} were computed more than "
                f"backward_passes_per_step={self.backward_passes_per_step} times before step(). Raise "
                "backward_passes_per_step to accumulate gradients locally."
            )
        self._allreduce_delay[parameter] -= 1
        if self._allreduce_delay[parameter] == 0:
            self._handles[parameter] = (None, None)
            members = self._group_of.get(parameter, [parameter])
            if all(member in self._handles for member in members):
                self._start(members)

    def _start(self, members: list[torch.Tensor]) -> None:
        names = [self._parameter_names[member] for member in members]
        wait = self._reducer.start(names, members, grouped=members[0] in self._group_of)
        for member in members:
            self._handles[member] = (wait, None)

    def _start_what_is_left(self) -> None:
        """Reduce what no hook has: missing gradients, as zeros, and groups that did not become complete."""
        self._listen_to_new_parameters()
        for parameter in self._all_parameters():
            is_frozen = not parameter.requires_grad and parameter.grad is None
            if parameter not in self._requires_update or is_frozen:
                continue
            if self._handles.get(parameter, (None, None))[0] is None:
                members = self._group_of.get(parameter, [parameter])
                for member in members:
                    self._reducer.fill_missing(member)
                self._start(members)

    def _wait(self) -> None:
        waits = {id(wait): wait for wait, _ in self._handles.values() if wait is not None}
        self._handles.clear()
        for parameter in self._allreduce_delay:
            self._allreduce_delay[parameter] = self.backward_passes_per_step
        wait_for_all(list(waits.values()))

    def synchronize(self) -> None:
        """Wait until every gradient is the reduction over all ranks. Gradients that are missing become zeros.

        Call it to work on reduced gradients (clipping) before ``with optimizer.skip_synchronize(): step()``.
        """
        if self._active:
            self._start_what_is_left()
            self._wait()
        self._synchronized = True

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside the block ``step()`` does not synchronize: the caller has."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Synchronize, unless inside ``skip_synchronize()``, and make the step of the wrapped optimizer.

        Gradients that ``closure`` computes are synchronized before the optimizer gets to use them.
        """
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This reduces the gradients a second time and is slow; write "
                    "`with optimizer.skip_synchronize(): optimizer.step()`.",
                    stacklevel=2,
                )
            self.synchronize()
        self._synchronized = False
        if closure is None:
            return super().step()
        return super().step(self._synchronizing(closure))

    # The wrapped class' step is hooked already: a second wrapper would run the user's step hooks twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        def closure_and_synchronize() -> Any:
            loss = closure()
            if self._handles:
                self._start_what_is_left()
                self._wait()
            return loss

        return closure_and_synchronize

    def zero_grad(self, *args: Any, **kwargs: Any) -> None:
        """As the wrapped optimizer's; AssertionError while gradients are being reduced."""
        if self._handles:
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(): the gradients are being reduced."
            )
        super().zero_grad(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """As the wrapped optimizer's; accumulation over backward passes starts anew."""
        self._wait()
        self._synchronized, self._should_synchronize = False, True
        super().load_state_dict(*args, **kwargs)

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Change after how many backward passes gradients are reduced; counting starts anew."""
        self.backward_passes_per_step = passes
        for parameter in self._allreduce_delay:
            self._allreduce_delay[parameter] = passes


def _hook_for(reference: weakref.ref[_DistributedOptimizer]) -> Callable[[torch.Tensor], None]:
    """A hook that does not keep the optimizer alive: parameters outlive it, and may get another one."""

    def hook(parameter: torch.Tensor) -> None:
        optimizer = reference()
        if optimizer is not None:
            optimizer._on_gradient(parameter)

    return hook


def _remove_hooks(hooks: dict[torch.Tensor, Any]) -> None:
    for hook in hooks.values():
        hook.remove()


def DistributedOptimizer(
    optimizer: torch.optim.Optimizer,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: CompressorLike = Compression.none,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """An optimizer of the same class, and with the same state, whose gradients are reduced over all ranks.

    Args:
        optimizer: what computes the step. Use the returned optimizer in its place.
        named_parameters: (name, parameter) pairs, usually ``model.named_parameters()``.
        compression: how gradients travel. Vectors, and what has fewer elements than the compressor's
            ``min_elements``, travel uncompressed where the compressor has that attribute.
        backward_passes_per_step: backward passes whose gradients are summed before they are reduced.
        op: Average, Sum, Min, Max or Product.
        gradient_predivide_factor: with Average, divide by this before the sum and by size() / this after it.
        num_groups: deprecated, write ``groups``.
        groups: reduce gradients together: a number of groups of even length, or lists of parameters.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: global_process_set is the only one yet.

    Raises:
        ValueError: an argument is wrong; most are found even before ``hvd.init()``.
        NotImplementedError: op is Adasum.
    """
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor is served with op=Average only.")
    if backward_passes_per_step <= 0:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step} must be 1 or more.")
    if isinstance(optimizer, _DistributedOptimizer):
        raise ValueError("This optimizer is a DistributedOptimizer already.")
    if num_groups:
        warnings.warn("Parameter num_groups has been replaced by groups.", DeprecationWarning, stacklevel=2)
    reducer = GradientReducer(op, gradient_predivide_factor, compression, sparse_as_dense)
    names = parameter_names(optimizer.param_groups, named_parameters)
    parameters = [p for entry in optimizer.param_groups for p in entry["params"]]
    checked = checked_groups(groups, num_groups, parameters)

    wrapped = _wrapped(optimizer)
    wrapped.op, wrapped.gradient_predivide_factor = op, gradient_predivide_factor
    wrapped.sparse_as_dense, wrapped.process_set = sparse_as_dense, process_set
    wrapped.backward_passes_per_step = backward_passes_per_step
    wrapped._reducer, wrapped._parameter_names, wrapped._groups = reducer, names, checked
    wrapped._begin()
    return wrapped


def _wrapped(optimizer: torch.optim.Optimizer) -> _DistributedOptimizer:
    """An instance of a new class that puts _DistributedOptimizer in front of the optimizer's.

    The constructor is not run: it would forget the optimizer's state, and may want arguments nobody knows
    here.
    """
    base = type(optimizer)
    # Scripts tell a wrapped optimizer by this module's name.
    members = {"__module__": __name__, "__doc__": base.__doc__}
    cls = type(base.__name__, (_DistributedOptimizer, base), members)
    wrapped: _DistributedOptimizer = object.__new__(cls)
    # A learning rate scheduler leaves a `step` in the instance, bound to the old optimizer: it must stay
    # behind.
    own = {name: value for name, value in vars(optimizer).items() if name not in ("step", "zero_grad")}
    wrapped.__dict__.update(own)
    return wrapped
