"""DistributedOptimizer: gradients are reduced while the backward pass runs, which waits for them at its end.

Life of a gradient: a hook fires when the backward pass has accumulated it; after ``backward_passes_per_step``
such passes its reduction starts, in place, by the parameter's name; the end of the pass waits. Every rank
reduces every parameter exactly once per step: ``step`` reduces those without a gradient as zeros, so ranks
with different control flow still match. docs/optimizer.md has the patterns; adasum_optimizer.py what
op=Adasum does instead.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import torch

from horovod.common import util
from horovod.common.basics import basics
from horovod.common.elastic import is_elastic
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.common.sentences import type_name
from horovod.torch import errors, shared_parameters
from horovod.torch.adasum_optimizer import DistributedAdasumOptimizer
from horovod.torch.compiling import breaks_graphs
from horovod.torch.compression import UNSET, CompressorLike
from horovod.torch.extra_gradients import ExtraGradients
from horovod.torch.gradient_listener import GradientListener
from horovod.torch.gradients import GradientReducer
from horovod.torch.missing_gradients import Subject
from horovod.torch.optimizer_front import OptimizerFront
from horovod.torch.parameters import (
    check_added_parameters,
    checked_groups,
    checked_passes,
    parameter_names,
)
from horovod.torch.reduce_ops import Adasum, Average

__all__ = ["DistributedOptimizer"]

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)

_DistributedAdasumOptimizer = DistributedAdasumOptimizer  # its name in Horovod


class _DistributedOptimizer(OptimizerFront):
    """The class in front of the user's optimizer class; ``super()`` is that class.

    Instances are made by DistributedOptimizer() only, which takes everything else over from the user's
    instance.
    """

    _synchronized: bool
    _should_synchronize: bool

    def _begin(self) -> None:
        self._synchronized, self._should_synchronize = False, True
        super()._begin()

    def _start(self, members: list[torch.Tensor]) -> None:
        names = [self._parameter_names[member] for member in members]
        reduction = self._reducer.start(names, members, grouped=self._life.is_grouped(members[0]))
        for member in members:
            self._handles[member] = (reduction, None)

    def _reduce_what_is_left(self) -> None:
        """Start what no hook has, with zeros for missing gradients, and wait for everything."""
        self._check_names_agree()
        shared_parameters.reduce_shared(self)
        for members in self._left_in_step():
            for member in members:
                if member.grad is None:
                    self._reducer.fill_missing(member)
                    self._missing.filled.add(member)
            self._start_and_note(members)
        self._finish_first()
        unused = list(self._perhaps_unused())
        self._wait()
        for parameter in unused:
            if parameter.grad is not None and self._reducer.is_zero(parameter):
                parameter.grad = None

    def _perhaps_unused(self) -> Iterator[torch.Tensor]:
        """Parameters that go without a gradient again if it is zero, so that the step leaves them alone.

        Groups that are completed have zeros of members that are frozen, and, with unused="none", of members
        that no rank has used; all ranks look at the same ones.
        """
        grouped = filter(self._life.is_grouped, self._missing.filled)
        yield from (parameter for parameter in grouped if not parameter.requires_grad)
        if self._unused == "none":
            yield from filter(self._life.is_grouped, self._life.contributions)

    def _left_in_step(self) -> Iterator[list[torch.Tensor]]:
        """Gradients that are still to be started, with zeros if this rank has none.

        A gradient that is frozen here, and with unused="none" any, is reduced only if another rank has it. So
        this rank asks about those, and starts them itself.
        """
        to_be_asked: list[Subject] = []
        for members in self._not_started():
            if self._unused == "zeros" and any(member.requires_grad for member in members):
                yield members
            else:
                to_be_asked.append(self._missing.unit(members, self._life.has_part(members)))
        self._missing.ask_in_step(to_be_asked, is_all=self._unused == "none")

    def _before_unscaling(self) -> None:
        """A GradScaler is about to change gradients, and this rank's decision must be that of all."""
        if self._active and self._should_synchronize and not (self._synchronized or self._is_settled):
            self._reduce_what_is_left()
            self._is_settled = True

    @breaks_graphs
    def synchronize(self) -> None:
        """Wait until every gradient is the reduction over all ranks. Gradients that are missing become zeros.

        Call it to work on reduced gradients (clipping) before ``with optimizer.skip_synchronize(): step()``.
        """
        if self._active:
            if not self._is_settled:
                self._reduce_what_is_left()
        else:
            self._reducer.end_step()
        self._synchronized = True
        self._note_end_of_step()

    @contextmanager
    def skip_synchronize(self) -> Iterator[None]:
        """Inside the block ``step()`` does not synchronize: the caller has."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @breaks_graphs
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
        self._note_step()
        try:
            return super().step() if closure is None else super().step(self._synchronizing(closure))
        finally:
            self._synchronized = self._is_settled = False
            self._note_final(self._hooks)

    # The wrapped class' step is hooked already: a second wrapper would run the user's step hooks twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """``closure``, and then the reduction of the gradients it has computed.

        LBFGS decides by the loss when to stop; ranks that decide differently would wait for each other for
        ever, so that its loss is reduced too.
        """
        decides_by_loss = isinstance(self, torch.optim.LBFGS)

        def closure_and_synchronize() -> Any:
            loss = closure()
            if not self._active:
                return loss
            passes = self.backward_passes_per_step
            has_new = any(left != passes for left in self._allreduce_delay.values())
            if decides_by_loss or self._shared or has_new:
                self._reduce_what_is_left()
            return self._reducer.reduced_loss(loss) if decides_by_loss else loss

        return closure_and_synchronize

    def _abandon_step(self) -> None:
        self._synchronized, self._should_synchronize, self._is_settled = False, True, False
        super()._abandon_step()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._synchronized, self._should_synchronize, self._is_settled = False, True, False
        super().load_state_dict(state_dict)

    load_state_dict.__doc__ = OptimizerFront.load_state_dict.__doc__


def DistributedOptimizer(
    optimizer: OptimizerT,
    named_parameters: Iterable[tuple[str, torch.Tensor]] | None = None,
    compression: CompressorLike | Mapping[str, Any] | str = UNSET,
    backward_passes_per_step: int = 1,
    op: int = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: int | list[list[torch.Tensor]] | None = None,
    sparse_as_dense: bool = False,
    process_set: ProcessSet = global_process_set,
    *,
    wait_in_backward: bool = True,
    unused: str = "zeros",
    skip_extra_backward: bool = False,
) -> OptimizerT:
    """An optimizer of the same class, and with the same state, whose gradients are reduced over all ranks.

    A type checker takes it for that class; what it has besides, as ``synchronize()``, it does not see.

    Args:
        optimizer: what computes the step. Use the returned optimizer in its place.
        named_parameters: (name, parameter) pairs, usually ``model.named_parameters()``.
        compression: how gradients travel: one of Compression, a compressor of your own, its text (see
            Compression.from_text), or rules as ``{"*.embed.weight": Compression.none, "*": "bit8"}`` for
            parameters' names: the first pattern that matches counts, and without one a gradient travels
            uncompressed. So do vectors, and what has fewer elements than the compressor's ``min_elements``.
            Without this argument the variable HOROVOD_COMPRESSION decides, and without that there is none.
        backward_passes_per_step: backward passes whose gradients are summed before they are reduced.
        op: Average, Sum, Min, Max or Product; with Adasum and more than one rank the steps that ranks would
            make are combined, instead of their gradients (docs/optimizer.md).
        gradient_predivide_factor: with Average, divide by this before the sum and by size() / this after it.
        num_groups: deprecated, write ``groups``.
        groups: reduce gradients together: a number of groups of even length, or lists of parameters.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: the ranks to reduce over. A rank outside of it makes its steps alone.
        wait_in_backward: at its end ``loss.backward()`` waits for the reductions that it has started, so that
            what looks at gradients before ``step()`` (GradScaler, clipping, noise) finds them reduced. With
            False ``step()`` and ``synchronize()`` wait, so that reductions go on while the script does
            something else; then call ``synchronize()`` before you change gradients. Nothing with Adasum.
        unused: the gradient of a parameter that no rank has used in a step: "zeros", as in Horovod, so that
            weight decay and momentum move it; or "none", as in DistributedDataParallel, so that the step
            leaves it alone.
        skip_extra_backward: leave out gradients that a backward pass adds to those that are reduced already,
            or that a step has used, until they are zeroed: as a generator's loss does to a discriminator.

    Raises:
        ValueError: an argument is wrong; most are found even before ``hvd.init()``.
        NotImplementedError: Adasum over a process set, or over a number of ranks that is no power of two.
    """
    checked_passes(backward_passes_per_step)
    _check_options(op, gradient_predivide_factor, unused, skip_extra_backward)
    if not hasattr(optimizer, "param_groups"):
        raise errors.wrong_optimizer(got=type_name(optimizer))
    if isinstance(optimizer, GradientListener):
        raise errors.wrapped_already()
    if op == Adasum and process_set != global_process_set:
        raise errors.adasum_over_set()
    if getattr(process_set, "process_set_id", None) is None:
        raise errors.unregistered_set(value=str(process_set))
    if num_groups:
        warnings.warn("Parameter num_groups has been replaced by groups.", DeprecationWarning, stacklevel=2)
    is_sparse, factor = isinstance(optimizer, torch.optim.SparseAdam), gradient_predivide_factor
    reducer = GradientReducer(op, factor, compression, sparse_as_dense, process_set, is_sparse)
    names = parameter_names(optimizer.param_groups, named_parameters)
    reducer.rules.check_names(names.values())
    check_added_parameters(names, op)
    parameters = [p for entry in optimizer.param_groups for p in entry["params"]]
    checked = checked_groups(groups, num_groups, parameters)

    wrapped = _wrapped(optimizer, _front_for(op))
    wrapped.op, wrapped.gradient_predivide_factor = op, factor
    wrapped.sparse_as_dense, wrapped.process_set = sparse_as_dense, process_set
    wrapped.backward_passes_per_step = backward_passes_per_step
    wrapped._wait_in_backward = wait_in_backward and not isinstance(wrapped, DistributedAdasumOptimizer)
    wrapped._reducer, wrapped._parameter_names, wrapped._groups = reducer, names, checked
    wrapped._unused, wrapped._extra = unused, ExtraGradients() if skip_extra_backward else None
    wrapped._wrap_again = functools.partial(
        DistributedOptimizer,
        compression=compression,
        backward_passes_per_step=backward_passes_per_step,
        op=op,
        gradient_predivide_factor=factor,
        sparse_as_dense=sparse_as_dense,
        process_set=process_set,
        wait_in_backward=wait_in_backward,
        unused=unused,
        skip_extra_backward=skip_extra_backward,
    )
    wrapped._begin()
    return cast(OptimizerT, wrapped)


def _check_options(op: int, gradient_predivide_factor: float, unused: str, skip_extra_backward: bool) -> None:
    if gradient_predivide_factor != 1.0 and op != Average:
        raise errors.predivided_op()
    if not gradient_predivide_factor > 0:
        raise errors.wrong_predivide_factor(value=gradient_predivide_factor)
    if unused not in ("zeros", "none"):
        raise errors.wrong_unused(value=unused)
    if skip_extra_backward and op == Adasum:
        raise errors.adasum_skips_nothing()


def _front_for(op: int) -> type[GradientListener]:
    """The class to put in front of the user's."""
    if op != Adasum or (basics.size() == 1 and not is_elastic()):
        return _DistributedOptimizer
    if not util.num_rank_is_power_2(basics.size()):
        raise errors.adasum_size(size=basics.size())
    return DistributedAdasumOptimizer


def _wrapped(optimizer: torch.optim.Optimizer, front: type[GradientListener]) -> GradientListener:
    """An instance of a new class that puts ``front`` before the optimizer's.

    The constructor is not run: it would forget the optimizer's state, and may want arguments nobody knows
    here.
    """
    base = type(optimizer)
    # Scripts tell a wrapped optimizer by this module's name.
    members = {"__module__": __name__, "__doc__": base.__doc__}
    cls = type(base.__name__, (front, base), members)
    wrapped: GradientListener = object.__new__(cls)
    # A learning rate scheduler leaves a `step` in the instance, bound to the old optimizer: it must stay
    # behind.
    own = {name: value for name, value in vars(optimizer).items() if name not in ("step", "zero_grad")}
    wrapped.__dict__.update(own)
    wrapped._origin = weakref.ref(optimizer)
    return wrapped
