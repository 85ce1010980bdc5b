"""At the end of a backward pass: gradients that this rank lacks and others have started to reduce.

Without this, such a gradient would be reduced in step() only, after the script has clipped, unscaled or
looked at gradients that are not those of the other ranks. So this rank asks what becomes of them, and takes
part before ``backward()`` returns. horovod.common.gradient_life decides, and describes how.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
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
    *("ask", "ask_after_pass", "take_part"),
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
    def _beside(self) -> Sequence[_Optimizer]: ...


class Subject(NamedTuple):
    """What is asked about.

    Attributes:
        of: whose it is.
        name: of the operation that reduces it, on all ranks.
        take_part: what to do if another rank has started it, or has a part of it.
        has_part: this rank has a part of it.
        is_unit: it is of gradients that have not been started in this step.
    """

    of: MissingGradients
    name: str
    take_part: Callable[[], None]
    has_part: bool = False
    is_unit: bool = False


class Question(NamedTuple):
    """A question that the ranks are to answer: its handle, and what it is about."""

    handle: int
    subjects: Sequence[Subject]
    ends: bool


def ask(subjects: Sequence[Subject], ends: bool = False) -> Question | None:
    """Ask what becomes of these, of optimizers of one process set; nothing is asked about nothing.

    If it ``ends`` the question, all ranks ask about the first at once, and nobody has the rest if that is
    answered before the rest is.
    """
    if not subjects:
        return None
    member = basics.member()
    names = [subject.name for subject in subjects]
    has_part = [subject.has_part for subject in subjects]
    question = f"missing_gradients.{basics.rank()}.{next(_numbers)}"
    set_id = member.id_of(subjects[0].of.process_set())
    return Question(member.engine.missing(question, names, has_part, set_id, ends), subjects, ends)


def take_part(question: Question | None, may_yield: bool) -> None:
    """Wait for answers, and start what other ranks have started.

    Where it ``may_yield``, ranks that wait for this one elsewhere are found out, and this one goes on.
    """
    nobodys: list[MissingGradients] = []
    while question is not None:
        answered = list(zip(question.subjects, _decisions(question, may_yield), strict=True))
        for subject, decision in answered:
            if decision == Decision.START:
                subject.take_part()
            elif decision == Decision.NOT_YET:
                subject.of.is_asked_about = False
            elif decision == Decision.NOBODY_HAS_IT and subject.is_unit:
                nobodys.append(subject.of)
        again = [subject for subject, decision in answered if decision == Decision.ASK_AGAIN]
        question = ask(again, question.ends)
    for missing in nobodys:
        missing.note_nobodys()


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
    for optimizer in (*ended, *(each for each in others if each._missing.is_asked_about)):
        missing, is_due = optimizer._missing, optimizer._life.has_due()
        if is_due or _rhythm(optimizer) in due:
            by_set.setdefault(_rhythm(optimizer)[0], []).extend(missing.lacking(is_due))
    return [question for _, subjects in sorted(by_set.items()) if (question := ask(subjects))]


def _rhythm(optimizer: _Optimizer) -> tuple[int, int]:
    set_id = optimizer.process_set.process_set_id
    assert set_id is not None
    return set_id, optimizer._life.passes


class MissingGradients:
    """Those of one optimizer, which may be a weak proxy. Only sums and averages can be completed, as zeros
    change any other result.

    Attributes:
        set_aside: by parameter of which a further contribution is under way, what that is added to.
        hooks: by parameter that this rank has lacked once, the hook that sets its gradient aside.
        filled: parameters that have got zeros in this step.
        is_incomplete: all ranks know that some gradients have been nobody's in a pass of this step.
        is_asked_about: after passes that have not reached the optimizer. Not if other ranks have left such a
            question unanswered: they may have no such optimizer any more. Until a pass reaches it again.
    """

    def __init__(self, optimizer: _Optimizer) -> None:
        self._of = optimizer
        self.set_aside: dict[torch.Tensor, torch.Tensor] = {}
        self.hooks: dict[torch.Tensor, Any] = {}
        self.filled: set[torch.Tensor] = set()
        self.is_incomplete = False
        self.is_asked_about = True

    def process_set(self) -> ProcessSet:
        """The ranks that share the optimizer."""
        return self._of.process_set

    def lacking(self, is_due: bool) -> list[Subject]:
        """What other ranks may have started. If the step ``is_due`` here, parts of it are to be started."""
        life = self._of._life
        if self._of._reducer.op not in (Average, Sum):
            return []
        units = life.left_over(self._of._takes_part)
        return [self.unit(members, is_due and life.has_part(members)) for members in units] + self.further()

    def unit(self, members: list[torch.Tensor], has_part: bool) -> Subject:
        """Gradients that are reduced together, and are not started here."""
        grouped = self._of._life.is_grouped(members[0])
        name = self._operation_of(members[0], grouped)
        return Subject(self, name, functools.partial(self._complete, members), has_part, is_unit=True)

    def further(self) -> list[Subject]:
        """Further contributions that other ranks may have started."""
        numbers = self._of._life.contributions
        return [
            Subject(
                self,
                self._operation_of(parameter, again=numbers[parameter]),
                functools.partial(self._complete_further, parameter),
            )
            for parameter in self._of._life.open()
        ]

    def _operation_of(self, first: torch.Tensor, grouped: bool = False, again: int = 0) -> str:
        return self._of._reducer.operation_name(self._of._parameter_names[first], first, grouped, again)

    def _complete(self, members: list[torch.Tensor]) -> None:
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

    def _complete_further(self, parameter: torch.Tensor) -> None:
        """Take part in one that this rank does not have."""
        assert parameter.grad is not None
        self.set_aside[parameter], parameter.grad = parameter.grad, None
        self._of._reducer.fill_missing(parameter)
        self.start_further(parameter)

    def add_further(self, members: Iterable[torch.Tensor]) -> None:
        """After their reduction: to what was set aside, if that is what they are."""
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
        """All ranks have been told that nobody has some gradient of a step that they have begun."""
        self.is_incomplete = self.is_incomplete or self._of._life.has_begun()

    def settle_in_step(self) -> None:
        """Take part in further contributions until no rank has any.

        Only after a pass in which some rank lacked something: then all ranks know it.
        """
        if any(each._life.contributions for each in self._coupled()):
            self._settle(is_due=True)

    def settle_before_zeroing(self) -> None:
        """As a step is given up: others may have gone on with it, in passes that this rank did not make."""
        if self._of._life.has_begun() and (self.is_incomplete or self._of._life.contributions):
            self._settle(is_due=False)
        self.is_incomplete = False

    def ask_in_step(self, units: Sequence[Subject], is_all: bool) -> None:
        """Take part in what other ranks have of these, which no pass has started here.

        If it ``is_all`` that is left, and passes have lacked it, all ranks ask at once.
        """
        if is_all and self.is_incomplete:
            self._settle(is_due=True)
        else:
            take_part(ask(units), may_yield=False)

    def _coupled(self) -> list[_Optimizer]:
        """It, and others of its passes: ranks may wait in those for what is reduced for this one."""
        return [self._of, *self._of._beside()]

    def _settle(self, is_due: bool) -> None:
        """All ranks do this at once, in a step, or as they give it up, until none has anything under way."""
        name = f"settled.{min(self._of._parameter_names.values())}{self._of._reducer.suffix}"
        is_over = False
        while not is_over:
            under_way: list[str] = []
            coupled = self._coupled()
            has_part = any(each._life.is_under_way() for each in coupled)
            all_ranks = Subject(self, name, lambda: under_way.append(name), has_part)  # noqa: B023
            lacking = self.lacking(is_due)
            for other in coupled[1:]:
                lacking += other._missing.lacking(is_due=False)
            take_part(ask([all_ranks, *lacking], ends=True), may_yield=not is_due)
            for each in coupled:
                each._finish_all(may_yield=not is_due)
            is_over = not under_way

    def end_step(self) -> None:
        """Begin the next step."""
        self.set_aside.clear()
        self.filled.clear()
        self.is_incomplete = False
