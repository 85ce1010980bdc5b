"""Reduces, at the end of a backward pass, gradients that this rank lacks and other ranks have started.

Otherwise such a gradient would be reduced in step() only, after the script has clipped, unscaled or read
gradients that differ between ranks. So this rank asks about them, and takes part before ``backward()``
returns. horovod.common.gradient_life decides, and describes the protocol. A pass may reach an optimizer on
some ranks only, so a rank asks about all of its optimizers.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.exceptions import HorovodInternalError
from horovod.common.gradient_life import Decision, GradientLife
from horovod.common.process_sets import ProcessSet
from horovod.torch.gradients import GradientReducer
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.step_gradients import StepGradients, call_before_accumulation

_numbers = itertools.count()  # numbers the questions of this process


class _Optimizer(Protocol):
    """The part of a GradientListener that this module needs."""

    process_set: ProcessSet
    _is_settled: bool
    _life: GradientLife[torch.Tensor]
    _missing: MissingGradients
    _reducer: GradientReducer
    _parameter_names: dict[torch.Tensor, str]
    _step: StepGradients

    def _takes_part(self, parameter: torch.Tensor) -> bool: ...
    def _start_after_streams(self, members: list[torch.Tensor]) -> None: ...
    def _finish(self, may_yield: bool) -> None: ...
    def _beside(self) -> Sequence[_Optimizer]: ...


class Subject(NamedTuple):
    """A gradient, or a group of gradients, that a rank asks about."""

    of: MissingGradients  # the owner
    name: str  # of the operation that reduces it, on all ranks
    take_part: Callable[[], None]  # called if another rank has started it, or has a part of it
    has_part: bool = False  # this rank has a part of it
    is_unit: bool = False  # its gradients have not been started in this step


class Question(NamedTuple):
    """A question to all ranks: its handle, its subjects, and the arguments of ``ask``."""

    handle: int
    subjects: Sequence[Subject]
    ends: bool
    anchor: str


def ask(subjects: Sequence[Subject], ends: bool = False, anchor: str = "") -> Question | None:
    """Ask about subjects, all of optimizers of one process set. Returns None if there are none.

    With ``ends`` all ranks ask about the first subject. Once all have asked, any other subject that is
    undecided counts as one that no rank has. ``anchor`` is the name of an operation of this rank's pass, or
    of a subject: ranks that have come as far, and are in no pass, need not ask
    (schedule/missing_gradients.h).
    """
    if not subjects:
        return None
    member = basics.member()
    names = [subject.name for subject in subjects]
    has_part = [subject.has_part for subject in subjects]
    question = f"missing_gradients.{basics.rank()}.{next(_numbers)}"
    set_id = member.id_of(subjects[0].of.process_set())
    handle = member.engine.missing(question, names, has_part, set_id, ends, anchor)
    return Question(handle, subjects, ends, anchor)


def take_part(question: Question | None, may_yield: bool, in_pass: bool = False) -> None:
    """Wait for answers, and start the gradients that other ranks have started.

    With ``may_yield``, continue without an answer if other ranks wait for this rank elsewhere. With
    ``in_pass``, the end of the job is no error, as other ranks have all that they need. If this rank needs
    more, its reduction or next operation raises.
    """
    nobodys: list[MissingGradients] = []
    until_end = contextlib.suppress(HorovodInternalError) if in_pass else contextlib.nullcontext()
    while question is not None:
        decisions: list[int] = []
        with until_end:
            decisions = _decisions(question, may_yield)
        answered = list(zip(question.subjects, decisions, strict=False))
        for subject, decision in answered:
            if decision == Decision.START:
                subject.take_part()
            elif decision == Decision.NOBODY_HAS_IT and subject.is_unit:
                nobodys.append(subject.of)
        again = [subject for subject, decision in answered if decision == Decision.ASK_AGAIN]
        ends, anchor, question = question.ends, question.anchor, None
        with until_end:
            question = ask(again, ends, anchor)
    for missing in nobodys:
        missing.note_nobodys()


def _decisions(question: Question, may_yield: bool) -> list[int]:
    engine = basics.member().engine
    while may_yield and not waiting.wait_or_yield(engine, question.handle):
        pass  # rank 0 ends the loop with an answer
    return list(waiting.wait(engine, question.handle).sizes)


def ask_after_pass(ended: Sequence[_Optimizer], others: Sequence[_Optimizer]) -> list[Question]:
    """Ask about the gradients that this rank lacks after a pass: one question for each process set.

    Other ranks may answer in another order, so a rank asks about all optimizers before it waits for any. The
    pass may have reached ``others`` on other ranks. If the job has ended, nothing is asked; see take_part.
    """
    questions: list[Question] = []
    for set_id in sorted({_set_id(optimizer) for optimizer in ended}):
        reached = [each for each in ended if _set_id(each) == set_id and each._life.has_due()]
        beside = [each for each in others if _set_id(each) == set_id]
        subjects = [subject for each in reached for subject in each._missing.lacking(is_due=True)]
        anchor = _anchor(reached, subjects) if beside else ""
        if anchor:
            of_others = (each._missing.lacking(is_due=each._life.has_due()) for each in beside)
            subjects.extend(itertools.chain.from_iterable(of_others))
        with contextlib.suppress(HorovodInternalError):
            questions += filter(None, [ask(subjects, anchor=anchor)])
    return questions


def _anchor(reached: Sequence[_Optimizer], subjects: Sequence[Subject]) -> str:
    """Return an operation of this pass, or one that the rank lacks; "" if there is none."""
    started = (name for optimizer in reached for name in optimizer._missing.started())
    return next(started, subjects[0].name if subjects else "")


def _set_id(optimizer: _Optimizer) -> int:
    set_id = optimizer.process_set.process_set_id
    assert set_id is not None
    return set_id


class MissingGradients:
    """The missing gradients of one optimizer, which may be a weak proxy.

    Only sums and averages can be completed, as zeros change any other result.
    """

    def __init__(self, optimizer: _Optimizer) -> None:
        self._of = optimizer
        # by parameter with a further contribution under way, the gradient that it is added to
        self.set_aside: dict[torch.Tensor, torch.Tensor] = {}
        # by parameter that this rank has lacked once, the hook that sets its gradient aside
        self.hooks: dict[torch.Tensor, Any] = {}
        self.filled: set[torch.Tensor] = set()  # parameters whose gradient is zeros in this step
        self.is_incomplete = False  # all ranks know that no rank had some gradient in a pass of this step

    def process_set(self) -> ProcessSet:
        return self._of.process_set

    def lacking(self, is_due: bool) -> list[Subject]:
        """Return the gradients that other ranks may have started.

        If the step ``is_due``, all ranks start a group as soon as one rank has a part of it.
        """
        life = self._of._life
        if self._of._reducer.op not in (Average, Sum):
            return []
        units = life.left_over(self._of._takes_part)
        return [self.unit(members, is_due and life.has_part(members)) for members in units] + self.further()

    def unit(self, members: list[torch.Tensor], has_part: bool) -> Subject:
        """Return the subject of gradients that are reduced together, and not started here."""
        grouped = self._of._life.is_grouped(members[0])
        name = self._operation_of(members[0], grouped)
        return Subject(self, name, functools.partial(self._complete, members), has_part, is_unit=True)

    def further(self) -> list[Subject]:
        """Return the further contributions that other ranks may have started."""
        numbers = self._of._life.contributions
        return [
            Subject(
                self,
                self._operation_of(parameter, again=numbers[parameter]),
                functools.partial(self._complete_further, parameter),
            )
            for parameter in self._of._life.open()
        ]

    def started(self) -> Iterator[str]:
        """Yield the operations that this rank has started and not waited for."""
        life = self._of._life
        for parameter in life.being_reduced():
            yield self._operation_of(life.unit(parameter)[0], life.is_grouped(parameter))
        for parameter in life.further():
            yield self._operation_of(parameter, again=life.contributions[parameter] - 1)

    def _operation_of(self, first: torch.Tensor, grouped: bool = False, again: int = 0) -> str:
        return self._of._reducer.operation_name(self._of._parameter_names[first], first, grouped, again)

    def _complete(self, members: list[torch.Tensor]) -> None:
        """Take part with zeros, or with an incomplete accumulation."""
        for member in members:
            if member not in self.hooks and member.requires_grad:
                self.hooks[member] = call_before_accumulation(self, member)
            if member.grad is None:
                self._of._reducer.fill_missing(member)
                self.filled.add(member)
        self._of._is_settled = False
        self._of._start_after_streams(members)

    def before_accumulation(self, parameter: torch.Tensor) -> None:
        """Set a reduced gradient aside, so that a further contribution does not mix with it.

        If the gradient was zeroed or changed meanwhile, as after a skipped step, nothing is set aside.
        """
        of = self._of
        if of._life.takes_further(parameter) and of._step.seen[parameter].is_untouched(parameter):
            assert parameter.grad is not None
            self.set_aside[parameter], parameter.grad = parameter.grad, None

    def is_further(self, parameter: torch.Tensor) -> bool:
        """Return whether the gradient that was just accumulated is a further contribution."""
        return parameter in self.set_aside

    def start_further(self, parameter: torch.Tensor) -> None:
        """Reduce a further contribution, which is the parameter's gradient now."""
        of = self._of
        number = of._life.started_further(parameter)
        name = of._parameter_names[parameter]
        reduction = of._reducer.start([name], [parameter], grouped=False, again=number)
        of._step.handles[parameter] = (reduction, None)
        of._step.note([parameter])

    def _complete_further(self, parameter: torch.Tensor) -> None:
        """Take part, with zeros, in a further contribution that this rank lacks."""
        assert parameter.grad is not None
        self.set_aside[parameter], parameter.grad = parameter.grad, None
        self._of._reducer.fill_missing(parameter)
        self.start_further(parameter)

    def add_further(self, members: Iterable[torch.Tensor]) -> None:
        """Add reduced further contributions to the gradients that were set aside for them."""
        if not self.set_aside:
            return
        for parameter in members:
            earlier = self.set_aside.pop(parameter, None)
            if earlier is not None:
                further = parameter.grad
                assert further is not None
                with torch.no_grad():
                    parameter.grad = earlier + further if earlier.is_sparse else earlier.add_(further)

    def note_nobodys(self) -> None:
        """Note that no rank has some gradient, as all ranks know. Counts in a step that has begun."""
        self.is_incomplete = self.is_incomplete or self._of._life.has_begun()

    def settle_in_step(self) -> None:
        """Take part in further contributions until no rank has any.

        Only after a pass in which some rank lacked a gradient, which all ranks know.
        """
        if self._of._life.contributions:
            self._settle(is_due=True)

    def settle_before_zeroing(self) -> None:
        """Settle a step that is given up: other ranks may have continued it in further passes."""
        if self._of._life.has_begun() and (self.is_incomplete or self._of._life.contributions):
            self._settle(is_due=False)
        self.is_incomplete = False

    def ask_in_step(self, units: Sequence[Subject], is_all: bool) -> None:
        """Take part in reductions of these units that other ranks have started.

        If these are all units left (``is_all``) and passes have lacked some, all ranks ask together.
        """
        if is_all and self.is_incomplete:
            self._settle(is_due=True)
        else:
            take_part(ask(units), may_yield=False)

    def _settle(self, is_due: bool) -> None:
        """Take part until no rank has a reduction under way. All ranks of the optimizer call it.

        A rank that is still in a pass may wait for further contributions to other optimizers.
        """
        others = self._of._beside()
        name = f"settled.{min(self._of._parameter_names.values())}{self._of._reducer.suffix}"
        is_over = False
        while not is_over:
            under_way: list[str] = []
            is_under_way = self._of._life.is_under_way()
            all_ranks = Subject(self, name, functools.partial(under_way.append, name), is_under_way)
            of_others = [subject for other in others for subject in other._missing.further()]
            take_part(ask([all_ranks, *self.lacking(is_due), *of_others], ends=True), may_yield=not is_due)
            for optimizer in (self._of, *others):
                optimizer._finish(may_yield=not is_due)
            is_over = not under_way

    def end_step(self) -> None:
        self.set_aside.clear()
        self.filled.clear()
        self.is_incomplete = False
