"""The base of all distributed optimizers: observes gradients, counts passes, and starts reductions.

A hook of each parameter fires when a backward pass has accumulated its gradient. The state machine of a
gradient's life (horovod.common.gradient_life) decides when it is due, and ``_start`` is called. At its end
the pass waits for all reductions, and takes part in reductions that other ranks have started of gradients
which this rank lacks. So after ``backward()`` gradients are reduced, and equal on all ranks. If the script
changes a gradient during its reduction, an error names it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from horovod.common import belongings, jobs
from horovod.common.basics import basics
from horovod.common.elastic import is_elastic
from horovod.common.exceptions import WrongUse
from horovod.common.gradient_life import GradientLife, Life, TooManyPasses
from horovod.common.process_sets import ProcessSet
from horovod.common.sentences import type_name
from horovod.torch import errors, shared_parameters
from horovod.torch.compiling import breaks_graphs
from horovod.torch.functions import parameters_of
from horovod.torch.gradients import GradientReducer, Pending, wait_for_all
from horovod.torch.missing_gradients import MissingGradients, ask_after_pass, take_part
from horovod.torch.parameters import (
    Groups,
    WireNames,
    default_name,
    group_members,
    in_order_of_first_rank,
    suffix_of,
)
from horovod.torch.reduce_ops import OP_NAMES, Average
from horovod.torch.step_gradients import ExtraGradients, SeenGradient, StepGradients, Which, all_of_them

# of all jobs, which they outlive
_all_listening: weakref.WeakSet[GradientListener] = weakref.WeakSet()
_registering = threading.Lock()


def listening() -> list[GradientListener]:
    """Return the listeners of all jobs of this process, even if inactive in this world."""
    with _registering:
        return list(_all_listening)


def listening_here() -> list[GradientListener]:
    return [listener for listener in listening() if listener._job is jobs.current()]


class GradientListener(torch.optim.Optimizer):
    """A mixin that DistributedOptimizer() places before an optimizer class, which ``super()`` then is.

    Scripts for Horovod read some attributes with an underscore.
    """

    op: int
    gradient_predivide_factor: float
    sparse_as_dense: bool
    process_set: ProcessSet
    backward_passes_per_step: int
    _reducer: GradientReducer
    _parameter_names: dict[torch.Tensor, str]  # between ranks
    _groups: Groups | None  # the caller's
    _life: GradientLife[torch.Tensor]  # the state of each gradient
    _missing: MissingGradients  # reduces gradients that this rank lacks, and further contributions
    _requires_update: set[torch.Tensor]  # parameters that take part in every step
    _handles: dict[torch.Tensor, tuple[Pending | None, Any]]  # those of _step, by parameter
    _step: StepGradients  # the gradients of the current step
    _end_of_pass: Callable[[], Callable[[], None] | None]  # a weak reference, dead if no pass is under way
    _wait_in_backward: bool
    _hooks: dict[torch.Tensor, Any]
    # parameters whose gradients an older optimizer reduces, under another name, for this one too
    _shared: dict[torch.Tensor, weakref.ref[GradientListener]]
    # by parameter shared with others, the gradient that was reduced for a step, until another comes
    _lent: dict[torch.Tensor, SeenGradient]
    _lent_to_others: set[torch.Tensor]
    _names_of_job: WireNames | None
    _number: int  # see parameters.py
    _has_agreed: bool
    _is_settled: bool
    _extra: ExtraGradients | None
    _unused: str
    _lost: list[str]
    _active: bool
    _job: jobs.Job
    _thread: int  # the last that used the optimizer, except in backward(), which may use other threads
    _origin: weakref.ref[torch.optim.Optimizer]
    _wrap_again: functools.partial[Any]

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise errors.not_constructed(got=type_name(self))

    def _begin(self) -> None:
        """Start to listen to gradients, if other ranks share them. ValueError before init."""
        self._requires_update, self._hooks, self._step = set(), {}, StepGradients()
        self._handles, self._lost, self._end_of_pass = self._step.handles, [], lambda: None
        self._shared, self._lent, self._lent_to_others = {}, {}, set()
        self._begin_step()
        self._names_of_job, self._has_agreed = None, False
        self._life = GradientLife(self.backward_passes_per_step)
        for parameter in parameters_of(self):
            self._life.add(parameter)
        self._missing = MissingGradients(weakref.proxy(self))
        self._job, self._thread = jobs.current(), threading.get_ident()
        self._active = self._is_shared()
        self._number = belongings.own(WireNames).number_for(self._set_id(), self._parameter_names)
        self._enter_job()
        if not self._active and not is_elastic():
            return
        with _registering:
            _all_listening.add(self)
        for hooks in self._all_hooks():
            weakref.finalize(self, _remove_hooks, hooks).atexit = False
        if self._active:
            self._listen()

    def _set_id(self) -> int | None:
        return self.process_set.process_set_id

    def _enter_job(self) -> None:
        """Take this job's names, at the first gradient. Elastic jobs forget names when ranks change."""
        names = belongings.own(WireNames)
        if names is not self._names_of_job:
            self._names_of_job, self._has_agreed = names, False
            names.take(self._set_id(), self._number, self._parameter_names)
            self._reducer.suffix = suffix_of(self._number)

    def _check_names_agree(self) -> None:
        """In the first step of a job, if names have a suffix, raise ValueError on all ranks if it differs."""
        if self._has_agreed or self._number == 0:
            return
        self._has_agreed = True
        smallest, largest = self._reducer.agree_on(self._number)
        if smallest != largest:
            raise errors.optimizers_differ(
                ranks=[basics.rank()],
                own=suffix_of(self._number),
                smallest=suffix_of(smallest),
                largest=suffix_of(largest),
            )

    @property
    def _allreduce_delay(self) -> dict[torch.Tensor, int]:
        """Horovod's name for the number of backward passes left until each parameter is due."""
        return self._life.left

    def _takes_part(self, parameter: torch.Tensor) -> bool:
        return parameter in self._hooks and parameter in self._requires_update

    def _is_shared(self) -> bool:
        return (basics.size() > 1 or is_elastic()) and bool(self.process_set.included())

    def _listen(self) -> None:
        self._listen_to_new_parameters()
        trainable = [p for p in parameters_of(self) if p in self._requires_update]
        # New workers of an elastic job make their optimizer while others train, and would wait here.
        if isinstance(self._groups, int) and not is_elastic():
            by_name = {self._parameter_names[parameter]: parameter for parameter in trainable}
            trainable = in_order_of_first_rank(by_name, self._groups, self.process_set)
        self._life.ungroup()
        for members in group_members(self._groups, trainable):
            self._life.group(members)

    def _begin_step(self) -> None:
        """Begin a step that nothing is known of."""
        self._is_settled = False

    def _abandon_step(self) -> None:
        """Forget the current step, as its job has ended."""
        self._begin_step()
        # reported already, and these gradients are not used
        with contextlib.suppress(Exception):
            self._finish(may_yield=False)
        self._end_of_pass = lambda: None
        self._step.clear()
        self._lent.clear()
        self._missing.end_step()
        self._reducer.in_flight.clear()
        self._life.end_step()

    def _join_new_world(self) -> None:
        """Continue in another world, in which this rank may have entered or left the process set.

        If the set is not registered nothing changes, and a reduction over it raises the error.
        """
        if self.process_set.process_set_id is None:
            return
        self._enter_job()
        was_active, self._active = self._active, self._is_shared()
        if self._active and not was_active:
            self._listen()
        if was_active and not self._active:
            for hooks in self._all_hooks():
                _remove_hooks(hooks)
                hooks.clear()
            self._requires_update.clear()

    def _listen_to_new_parameters(self) -> None:
        """Hook parameters that are trainable and have no hook: the added and unfrozen ones, at first all."""
        for group, entry in enumerate(self.param_groups):
            for index, parameter in enumerate(entry["params"]):
                if parameter in self._hooks or not parameter.requires_grad:
                    continue
                if not shared_parameters.has_owner(self, parameter):
                    self._parameter_names.setdefault(parameter, default_name(group, index))
                    self._take_over(parameter)
                    if shared_parameters.leave_to_owner(self, parameter, self._others()):
                        continue
                    self._requires_update.add(parameter)
                    self._life.add(parameter)
                    hook = _hook_for(weakref.ref(self))
                    self._hooks[parameter] = parameter.register_post_accumulate_grad_hook(hook)
                    if self._extra is not None:
                        self._extra.listen_to(parameter)

    def _listen_to_thawed(self) -> None:
        """At the end of a pass, count gradients of parameters that were frozen or absent, without hook."""
        before = len(self._hooks)
        self._listen_to_new_parameters()
        for parameter in list(self._hooks)[before:]:
            if parameter.grad is not None:
                self._step.wait_for(parameter)
                self._life.accumulated(parameter)

    def _others(self) -> list[GradientListener]:
        return [other for other in listening_here() if other is not self]

    def _beside(self) -> list[GradientListener]:
        """Return the other listeners of the same ranks and thread, which this pass may reach on other ranks.

        Those of an ended job are excluded, as their names may equal names of this job.
        """

        def whose(listener: GradientListener) -> tuple[object, ...]:
            of_job = id(listener._names_of_job), listener._set_id(), listener._active
            return *of_job, listener._thread, listener._wait_in_backward

        return [other for other in self._others() if whose(other) == whose(self) and not other._lost]

    def _all_hooks(self) -> list[dict[torch.Tensor, Any]]:
        extra = [] if self._extra is None else [self._extra.hooks]
        return [self._hooks, self._missing.hooks, *extra]

    def _take_over(self, parameter: torch.Tensor) -> None:
        """Remove the hooks of older optimizers that reduce the parameter under the same name.

        A scheduler may keep such an optimizer alive, and two reductions of one name would collide.
        """
        name = self._parameter_names[parameter]
        for other in listening():
            if other is not self and parameter in other._hooks and other._parameter_names[parameter] == name:
                for hooks in other._all_hooks():
                    if parameter in hooks:
                        hooks.pop(parameter).remove()
                other._requires_update.discard(parameter)
                other._lost.append(name)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        if self._extra is not None and self._extra.drop(parameter):
            return
        if self._end_of_pass() is None:
            self._begin_pass()
        if self._lent:
            self._lent.pop(parameter, None)
        if self._extra is not None and parameter in self._handles and self._has_been_zeroed(parameter):
            self._life.forget(parameter)
        if self._missing.set_aside and self._missing.is_further(parameter):
            return self._missing.start_further(parameter)
        try:
            due = self._life.accumulated(parameter)
        except TooManyPasses:
            self._check_step_was_skipped(parameter)
            self._forget_reduced()
            due = self._life.accumulated(parameter)
        if self._life.is_grouped(parameter):
            self._step.note_stream(parameter)
        elif due:
            return self._start_and_note(due)
        self._step.wait_for(parameter)
        if due:
            self._start_after_streams(due)

    def _has_gone(self, parameter: torch.Tensor) -> bool:
        is_further = self._missing.is_further(parameter)
        return not is_further and not self._step.seen[parameter].is_of(parameter)

    def _has_been_zeroed(self, parameter: torch.Tensor) -> bool:
        """Return whether model.zero_grad(), which has no hook, discarded an incomplete accumulation."""
        is_waiting = self._life.of(parameter) is Life.WAITING
        return is_waiting and not self._step.seen[parameter].was_only_added_to(parameter)

    def _begin_pass(self) -> None:
        """Begin a backward pass, at its first gradient. Passes of reentrant checkpoints lie within it.

        Reduced gradients that no longer exist belonged to a step that was skipped.
        """
        self._enter_job()
        self._is_settled = False
        self._forget_gone()
        reference = weakref.ref(self)
        job = jobs.current()
        _note_pass(True)

        @breaks_graphs
        def end() -> None:
            optimizer = reference()
            if optimizer is not None:
                job.run(_end_pass)

        # Autograd drops `end` even if the pass fails, so the reference tells whether a pass is under way.
        self._end_of_pass = weakref.ref(end, lambda _: job.run(_note_pass, False))
        torch.autograd.Variable._execution_engine.queue_callback(end)

    def _forget_gone(self) -> None:
        if any(reduction is not None for reduction, _ in self._handles.values()):
            self._forget_reduced(self._has_gone)

    def _finish_pass(self) -> None:
        """Wait for started reductions. Skip one if its other ranks wait for this rank elsewhere."""
        try:
            self._finish(may_yield=True)
        except BaseException:
            self._forget_reduced()
            raise

    def _finish_first(self) -> None:
        """In a step, wait for what all ranks have started by now. Further contributions are settled later."""
        self._finish(may_yield=False, which=lambda parameter: not self._missing.is_further(parameter))

    def _finish(self, may_yield: bool, which: Which = all_of_them) -> None:
        """Wait for reductions under way. RuntimeError if the script has changed gradients meanwhile."""
        changed = self._step.finish(may_yield, self._on_reduced, which)
        if changed:
            raise self._gradients_changed([self._parameter_names[member] for member in changed])

    def _on_reduced(self, members: list[torch.Tensor], is_completed: bool) -> None:
        self._missing.add_further(members)
        self._life.reduced(members, is_completed)
        self._step.note(members)
        self._note_final(members)

    def _gradients_changed(self, names: list[str]) -> WrongUse:
        return errors.gradient_changed(names=names, ranks=[basics.rank()])

    def _check_step_was_skipped(self, parameter: torch.Tensor) -> None:
        """Raise AssertionError unless a gradient that comes after the reduction may be that of another step.

        The tensor is the same: it was zeroed, or the new gradient was added to the reduced one. An average
        can be averaged again, as in DistributedDataParallel.
        """
        if self.op == Average and self._step.may_be_averaged_again(parameter):
            return
        raise errors.too_many_passes(
            tensor=self._parameter_names[parameter],
            passes=self.backward_passes_per_step,
            with_op="" if self.op == Average else f" with op={OP_NAMES[self.op]}",
        )

    def _forget_reduced(self, which: Which = all_of_them) -> None:
        """Start the step again for parameters that are not being reduced: the script has skipped it."""
        for parameter in self._step.take_rested(which):
            self._life.forget(parameter)

    def _start_after_streams(self, members: list[torch.Tensor]) -> None:
        self._step.follow_streams(members)
        self._start_and_note(members)

    def _start_and_note(self, members: list[torch.Tensor]) -> None:
        self._start(members)
        self._life.started(members)
        self._step.note(members)

    def _note_final(self, members: Iterable[torch.Tensor]) -> None:
        """Report final gradients to skip_extra_backward. Completed ones may still get contributions."""
        if self._extra is not None:
            for member in members:
                if member in self._extra.hooks and member not in self._missing.hooks:
                    self._extra.note_final(member)

    def _reduce_for_others(self, parameters: set[torch.Tensor]) -> None:
        """Reduce these parameters, unless done, for the step of another optimizer that shares them."""
        for members in self._not_started():
            if parameters.intersection(members):
                for member in members:
                    self._reducer.fill_missing(member)
                self._start_and_note(members)
        self._finish_first()
        self._missing.settle_in_step()

    def _start(self, members: list[torch.Tensor]) -> None:
        """Start the reduction of parameters that are reduced together, and set their ``_handles``."""
        raise errors.not_written(owner=type(self).__name__, what="gradients are reduced")

    def _not_started(self) -> Iterator[list[torch.Tensor]]:
        """Yield lists of parameters to be reduced together, whose reduction no hook has started.

        These are missing gradients, and groups that did not become complete.
        """
        if self._lost:
            raise errors.taken_over(names=list(self._lost))
        self._listen_to_new_parameters()
        for members in self._life.left_over(self._takes_part):
            if not all(shared_parameters.is_lent(self, member) for member in members):
                yield members

    def _wait(self) -> None:
        self._thread = threading.get_ident()
        try:
            self._finish_first()
            self._missing.settle_in_step()
            shared_parameters.lend(self)
            self._reducer.end_step()
        finally:
            self._step.clear()
            self._missing.end_step()
            self._life.end_step()

    def _note_step(self) -> None:
        """Mark the wrapped instance as stepped. A scheduler made for that instance would warn otherwise."""
        origin: Any = self._origin()
        if origin is not None:
            origin._opt_called = True

    def _note_end_of_step(self) -> None:
        """Report the end of a step, if all ranks of the job make it."""
        if self._active and self.process_set.process_set_id == 0:
            self._reducer.step_ended("optimizer", self._trained)

    def _trained(self) -> tuple[str, Sequence[torch.Tensor]]:
        return type(self).__name__, parameters_of(self)


def _hook_for(reference: weakref.ref[GradientListener]) -> Callable[[torch.Tensor], None]:
    """Return a hook that does not keep the optimizer alive: parameters may outlive it."""
    job = jobs.current()

    @breaks_graphs  # compiled too, with backward(), if a whole training step is
    def hook(parameter: torch.Tensor) -> None:
        optimizer = reference()
        if optimizer is not None:
            job.run(optimizer._on_gradient, parameter)

    return hook


def _end_pass() -> None:
    """End a pass for all optimizers that it has reached. All ask before any waits, to avoid a deadlock."""
    ending = [listener for listener in listening_here() if listener._end_of_pass() is not None]
    for listener in ending:
        listener._end_of_pass = lambda: None
    ended = [listener for listener in ending if listener._wait_in_backward]
    beside = [each for listener in ended for each in listener._beside()]
    others = [each for each in dict.fromkeys(beside) if each not in ending]
    try:
        for listener in others:
            listener._forget_gone()
        for listener in (*ended, *others):
            listener._listen_to_thawed()
        questions = ask_after_pass(ended, others)
        waits = [
            functools.partial(take_part, question, may_yield=True, in_pass=True) for question in questions
        ]
        wait_for_all([*waits, *(listener._finish_pass for listener in (*ended, *others))])
    finally:
        _note_pass(False)


def _note_pass(is_in_pass: bool) -> None:
    """Report to the engine whether a pass is under way, for ranks that ask about it."""
    if basics.is_initialized():
        basics.member().engine.note_pass(is_in_pass)


def _remove_hooks(hooks: dict[torch.Tensor, Any]) -> None:
    for hook in hooks.values():
        hook.remove()
