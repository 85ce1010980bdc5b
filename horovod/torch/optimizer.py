"""DistributedOptimizer: reduces gradients while the backward pass runs, and waits for them at its end.

A hook fires when the backward pass has accumulated a gradient. After ``backward_passes_per_step`` such passes
its reduction starts, in place, under the parameter's name. The end of the pass waits for all reductions.
Every rank reduces every parameter exactly once per step: ``step`` reduces missing gradients as zeros, so
ranks with different control flow still match. docs/optimizer.md has the patterns, and adasum_optimizer.py the
variant for op=Adasum.
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
from horovod.torch.complex_numbers import check_added
from horovod.torch.compression import UNSET, CompressorLike
from horovod.torch.functions import parameters_of
from horovod.torch.gradient_listener import GradientListener
from horovod.torch.gradients import GradientReducer
from horovod.torch.missing_gradients import Subject
from horovod.torch.optimizer_front import OptimizerFront
from horovod.torch.parameters import checked_groups, checked_passes, parameter_names
from horovod.torch.reduce_ops import Adasum, Average
from horovod.torch.step_gradients import ExtraGradients

__all__ = ["DistributedOptimizer"]

OptimizerT = TypeVar("OptimizerT", bound=torch.optim.Optimizer)

_DistributedAdasumOptimizer = DistributedAdasumOptimizer  # Horovod's name


class _DistributedOptimizer(OptimizerFront):
    """A mixin placed before the user's optimizer class, which ``super()`` therefore is.

    DistributedOptimizer() makes instances, and takes everything else from the user's instance.
    """

    _synchronized: bool
    _should_synchronize: bool

    def _begin_step(self) -> None:
        super()._begin_step()
        self._synchronized, self._should_synchronize = False, True

    def _start(self, members: list[torch.Tensor]) -> None:
        names = [self._parameter_names[member] for member in members]
        reduction = self._reducer.start(names, members, grouped=self._life.is_grouped(members[0]))
        for member in members:
            self._handles[member] = (reduction, None)

    def _reduce_what_is_left(self) -> None:
        """Start the reductions that no hook has started, with zeros for missing gradients; wait for all."""
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
        """Yield parameters that lose their gradient again if it is zero, so that the step skips them.

        A completed group has zeros for frozen members and, with unused="none", for members that no rank has
        used. All ranks yield the same parameters.
        """
        grouped = filter(self._life.is_grouped, self._missing.filled)
        yield from (parameter for parameter in grouped if not parameter.requires_grad)
        if self._unused == "none":
            yield from filter(self._life.is_grouped, self._life.contributions)

    def _left_in_step(self) -> Iterator[list[torch.Tensor]]:
        """Yield gradients that are still to be started, with zeros if this rank has none.

        A frozen gradient, and with unused="none" any, is reduced only if another rank has it. This rank asks
        about these, and starts them itself.
        """
        to_be_asked: list[Subject] = []
        for members in self._not_started():
            if self._unused == "zeros" and any(member.requires_grad for member in members):
                yield members
            else:
                to_be_asked.append(self._missing.unit(members, self._life.has_part(members)))
        self._missing.ask_in_step(to_be_asked, is_all=self._unused == "none")

    def _before_unscaling(self) -> None:
        """Reduce gradients before a GradScaler reads them, so that all ranks make the same decision."""
        if self._active and self._should_synchronize and not (self._synchronized or self._is_settled):
            self._reduce_what_is_left()
            self._is_settled = True

    @breaks_graphs
    def synchronize(self) -> None:
        """Wait until every gradient is reduced over all ranks. Missing gradients become zeros.

        Call it before you change gradients (clipping), then ``with optimizer.skip_synchronize(): step()``.
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
        """Inside the block ``step()`` does not synchronize, as the caller has done so."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    @breaks_graphs
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Synchronize, unless inside ``skip_synchronize()``, and make the step of the wrapped optimizer.

        Gradients that ``closure`` computes are synchronized before the optimizer uses them.
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

    # The wrapped class' step is hooked already. A second wrapper would run the user's step hooks twice.
    step.hooked = True  # type: ignore[attr-defined]

    def _synchronizing(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that calls ``closure`` and reduces the gradients that it has computed.

        LBFGS decides by the loss when to stop. Different decisions would deadlock, so its loss is reduced
        too.
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
    """Return an optimizer of the same class, with the same state, that reduces gradients over all ranks.

    A type checker sees an instance of that class, without additional methods such as ``synchronize()``.

    Args:
        optimizer: computes the step. Use the returned optimizer in its place.
        named_parameters: (name, parameter) pairs, usually ``model.named_parameters()``.
        compression: one of Compression, your own compressor, its text (see Compression.from_text), or rules
            for parameters' names such as ``{"*.embed.weight": Compression.none, "*": "bit8"}``. The first
            pattern that matches counts; without one a gradient travels uncompressed, as do vectors and
            tensors with fewer elements than the compressor's ``min_elements``. Without this argument the
            variable HOROVOD_COMPRESSION decides, and the default is no compression.
        backward_passes_per_step: backward passes whose gradients are summed before they are reduced.
        op: Average, Sum, Min, Max or Product. With Adasum and more than one rank, the ranks' steps are
            combined instead of their gradients (docs/optimizer.md).
        gradient_predivide_factor: with Average, divide by this before the sum and by size() / this after it.
        num_groups: deprecated, use ``groups``.
        groups: reduce gradients together: a number of groups of equal length, or lists of parameters.
        sparse_as_dense: reduce sparse gradients as dense ones.
        process_set: the ranks to reduce over. A rank outside of it makes its steps alone.
        wait_in_backward: at its end ``loss.backward()`` waits for its reductions, so that code which reads
            gradients before ``step()`` (GradScaler, clipping, noise) finds them reduced. With False,
            ``step()`` and ``synchronize()`` wait, so that reductions overlap with other work of the script;
            then call ``synchronize()`` before you change gradients. No effect with Adasum.
        unused: the gradient of a parameter that no rank has used in a step: "zeros", as in Horovod, so that
            weight decay and momentum change it; or "none", as in DistributedDataParallel, so that the step
            skips it.
        skip_extra_backward: ignore gradients that a backward pass adds to gradients which are reduced, or
            which a step has used, until they are zeroed. A generator's loss adds such gradients to a
            discriminator.

    Raises:
        ValueError: an argument is wrong. Most errors are found even before ``hvd.init()``.
        NotImplementedError: Adasum over a process set, or over a number of ranks that is not a power of two.
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
    for parameter, name in names.items():
        check_added(parameter, f"DistributedOptimizer, gradient of {name!r}", op)
    checked = checked_groups(groups, num_groups, parameters_of(optimizer))

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
    if op != Adasum or (basics.size() == 1 and not is_elastic()):
        return _DistributedOptimizer
    if not util.num_rank_is_power_2(basics.size()):
        raise errors.adasum_size(size=basics.size())
    return DistributedAdasumOptimizer


def _wrapped(optimizer: torch.optim.Optimizer, front: type[GradientListener]) -> GradientListener:
    """Return an instance of a new class that places ``front`` before the optimizer's class.

    The constructor does not run: it would forget the optimizer's state, and may need unknown arguments.
    """
    base = type(optimizer)
    # Scripts recognize a wrapped optimizer by this module's name.
    members = {"__module__": __name__, "__doc__": base.__doc__}
    cls = type(base.__name__, (front, base), members)
    wrapped: GradientListener = object.__new__(cls)
    # A learning rate scheduler leaves a `step` in the instance, bound to the old optimizer. Do not copy it.
    own = {name: value for name, value in vars(optimizer).items() if name not in ("step", "zero_grad")}
    wrapped.__dict__.update(own)
    wrapped._origin = weakref.ref(optimizer)
    return wrapped
