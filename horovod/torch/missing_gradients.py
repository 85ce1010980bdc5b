"""At the end of a backward pass: gradients that this rank lacks and others have started to reduce.

Without this, such a gradient would be reduced in step() only, after the script has clipped, unscaled or
looked at gradients that are not those of the other ranks. So this rank asks what becomes of them, and takes
part before ``backward()`` returns. horovod.common.gradient_life decides, and describes how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import torch

from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.gradient_life import Decision, GradientLife
from horovod.common.process_sets import ProcessSet
from horovod.torch import before_accumulation
from horovod.torch.gradients import GradientReducer, Reduction
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.seen_gradient import SeenGradient

__all__ = [
    *("MissingGradients", "Question", "Subject"),
    *("ask", "ask_after_pass", "settle_further", "take_part"),
]

_numbers = itertools.count()  # of the questions of this process


class _Optimizer(Protocol):
    """The part of a GradientListener that is needed here."""

    process_set: ProcessSet
    _is_settled: bool
    _life: GradientLife[torch.Tensor]
    _missing: MissingGradients
    _reducer: GradientReducer
    _parameter_names: dict[torch.Tensor, str]
    _handles: dict[torch.Tensor, tuple[Reduction | None, Any]]
    _seen: dict[torch.Tensor, SeenGradient]

    def _takes_part(self, parameter: torch.Tensor) -> bool: ...
    def _start_after_streams(self, members: list[torch.Tensor]) -> None: ...
    def _finish_all(self, may_yield: bool) -> None: ...


class Subject(NamedTuple):
    """What is asked about: gradients that are reduced together and not started here, or a further
    contribution of one parameter.
    """

    of: MissingGradients
    members: list[torch.Tensor]
    is_further: bool = False
    has_part: bool = False

    def take_part(self) -> None:
        """In what other ranks have started."""
        if self.is_further:
            self.of.complete_further(self.members[0])
        else:
            self.of.complete(self.members)


class Question(NamedTuple):
    """A question that the ranks are to answer: its handle, and what it is about."""

    handle: int
    subjects: Sequence[Subject]


def ask(subjects: Sequence[Subject]) -> Question | None:
    """Ask what becomes of these, of optimizers of one process set; nothing is asked about nothing."""
    if not subjects:
        return None
    member = basics.member()
    names = [subject.of.operation_of(subject) for subject in subjects]
    has_part = [subject.has_part for subject in subjects]
    question = f"missing_gradients.{basics.rank()}.{next(_numbers)}"
    set_id = member.id_of(subjects[0].of.process_set())
    return Question(member.engine.missing(question, names, has_part, set_id), subjects)


def take_part(question: Question | None, may_yield: bool) -> bool:
    """Wait for answers, and start what other ranks have started; whether there was any.

    Where it ``may_yield``, ranks that wait for this one elsewhere are found out, and this one goes on.
    """
    has_started = False
    while question is not None:
        answered = list(zip(question.subjects, _decisions(question, may_yield), strict=True))
        for subject, decision in answered:
            if decision == Decision.START:
                has_started = True
                subject.take_part()
            elif decision == Decision.NOT_YET:
                subject.of.is_asked_about = False
        question = ask([subject for subject, decision in answered if decision == Decision.ASK_AGAIN])
    return has_started


def _decisions(question: Question, may_yield: bool) -> list[int]:
    engine = basics.member().engine
    while may_yield and not waiting.wait_or_yield(engine, question.handle):
        pass  # rank 0 has it yield by answering
    return list(waiting.wait(engine, question.handle).sizes)


def ask_after_pass(ended: Sequence[_Optimizer], others: Sequence[_Optimizer]) -> list[Question]:
    """What this rank lacks at the end of a pass that has reached the optimizers ``ended``: a question for
    each process set, none if it lacks nothing or nothing is due.

    The pass may have reached ``others`` on other ranks. So they are asked about where gradients of one that
    ended are due: in their own process set, after as many passes.
    """
    for optimizer in ended:
        optimizer._missing.is_asked_about = True
    due = {_rhythm(optimizer) for optimizer in ended if optimizer._life.has_due()}
    by_set: dict[int, list[Subject]] = {}
    for optimizer in (*ended, *others):
        if optimizer._life.has_due() or _rhythm(optimizer) in due:
            by_set.setdefault(_rhythm(optimizer)[0], []).extend(optimizer._missing.lacking())
    return [question for _, subjects in sorted(by_set.items()) if (question := ask(subjects))]


def _rhythm(optimizer: _Optimizer) -> tuple[int, int]:
    set_id = optimizer.process_set.process_set_id
    assert set_id is not None
    return set_id, optimizer._life.passes


def settle_further(optimizers: Sequence[_Optimizer]) -> None:
    """In a step of one of these, of one process set: take part in further contributions to any, until no rank
    has any more.

    Only after a pass in which some rank lacked something: then all ranks know it.
    """
    while any(optimizer._life.contributions for optimizer in optimizers):
        was_under_way = any(optimizer._life.is_under_way() for optimizer in optimizers)
        further = [subject for optimizer in optimizers for subject in optimizer._missing.further()]
        has_started = take_part(ask(further), may_yield=False)
        for optimizer in optimizers:
            optimizer._finish_all(may_yield=False)
        if not has_started and not was_under_way:
            break


class MissingGradients:
    """Those of one optimizer, which may be a weak proxy. Only sums and averages can be completed, as zeros
    change any other result.

    Attributes:
        set_aside: by parameter of which a further contribution is under way, what that is added to.
        hooks: by parameter that this rank has lacked once, the hook that sets its gradient aside.
        filled: parameters that have got zeros in this step.
        is_asked_about: after passes that have not reached the optimizer. Not if other ranks have left such a
            question unanswered: they may have no such optimizer any more. Until a pass reaches it again.
    """

    def __init__(self, optimizer: _Optimizer) -> None:
        self._of = optimizer
        self.set_aside: dict[torch.Tensor, torch.Tensor] = {}
        self.hooks: dict[torch.Tensor, Any] = {}
        self.filled: set[torch.Tensor] = set()
        self.is_asked_about = True

    def process_set(self) -> ProcessSet:
        """The ranks that share the optimizer."""
        return self._of.process_set

    def lacking(self) -> list[Subject]:
        """What other ranks may have started, or may start as others of the step are due."""
        life = self._of._life
        if self._of._reducer.op not in (Average, Sum) or not self.is_asked_about:
            return []
        is_due = life.has_due()
        units = life.left_over(self._of._takes_part)
        lacking = [Subject(self, unit, has_part=is_due and life.has_part(unit)) for unit in units]
        return lacking + self.further()

    def further(self) -> list[Subject]:
        """Further contributions that other ranks may have started."""
        return [Subject(self, [parameter], is_further=True) for parameter in self._of._life.open()]

    def operation_of(self, subject: Subject) -> str:
        """The name under which it is reduced."""
        first, of = subject.members[0], self._of
        again = of._life.contributions[first] if subject.is_further else 0
        grouped = not again and of._life.is_grouped(first)
        return of._reducer.operation_name(of._parameter_names[first], first, grouped, again)

    def complete(self, members: list[torch.Tensor]) -> None:
        """Take part with zeros, or with what there is of an accumulation."""
        for member in members:
            if member not in self.hooks and member.requires_grad:
                self.hooks[member] = before_accumulation.register(self, member)
            if member.grad is None:
                self._of._reducer.fill_missing(member)
                self.filled.add(member)
        self._of._is_settled = False
        self._of._start_after_streams(members)

    def before_accumulation(self, parameter: torch.Tensor) -> None:
        """Set a gradient that is reduced aside: a further contribution must not mix with it.

        It is none if the gradient has been zeroed or changed meanwhile, as for a step that was skipped.
        """
        of = self._of
        if of._life.takes_further(parameter) and of._seen[parameter].is_untouched(parameter):
            assert parameter.grad is not None
            self.set_aside[parameter], parameter.grad = parameter.grad, None

    def is_further(self, parameter: torch.Tensor) -> bool:
        """Whether the gradient that has just been accumulated is a further contribution."""
        return parameter in self.set_aside

    def start_further(self, parameter: torch.Tensor) -> None:
        """Reduce a further contribution, which is the parameter's gradient now."""
        of = self._of
        number = of._life.started_further(parameter)
        name = of._parameter_names[parameter]
        reduction = of._reducer.start([name], [parameter], grouped=False, again=number)
        of._handles[parameter] = (reduction, None)
        of._seen[parameter] = SeenGradient(parameter)

    def complete_further(self, parameter: torch.Tensor) -> None:
        """Take part in one that this rank does not have."""
        assert parameter.grad is not None
        self.set_aside[parameter], parameter.grad = parameter.grad, None
        self._of._reducer.fill_missing(parameter)
        self.start_further(parameter)

    @torch.no_grad()
    def add_further(self, members: Iterable[torch.Tensor]) -> None:
        """After their reduction: to what was set aside, if that is what they are."""
        for parameter in members:
            earlier = self.set_aside.pop(parameter, None)
            if earlier is not None:
                further = parameter.grad
                assert further is not None
                parameter.grad = earlier + further if earlier.is_sparse else earlier.add_(further)
