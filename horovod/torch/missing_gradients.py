"""At the end of a backward pass: gradients that this rank lacks and others have started to reduce.

Without this, such a gradient would be reduced in step() only, after the script has clipped, unscaled or
looked at gradients that are not those of the other ranks. So this rank asks what becomes of them, and takes
part before ``backward()`` returns. horovod.common.gradient_life decides, and describes how.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.gradient_life import Decision, GradientLife
from horovod.common.process_sets import ProcessSet
from horovod.torch import before_accumulation
from horovod.torch.gradients import GradientReducer, Reduction
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.seen_gradient import SeenGradient

__all__ = ["MissingGradients", "Question"]

T = TypeVar("T")

_numbers = itertools.count()  # of the questions of this process


class _Optimizer(Protocol):
    """The part of a GradientListener that is needed here."""

    process_set: ProcessSet
    _life: GradientLife[torch.Tensor]
    _reducer: GradientReducer
    _parameter_names: dict[torch.Tensor, str]
    _handles: dict[torch.Tensor, tuple[Reduction | None, Any]]
    _seen: dict[torch.Tensor, SeenGradient]

    def _takes_part(self, parameter: torch.Tensor) -> bool: ...
    def _start_after_streams(self, members: list[torch.Tensor]) -> None: ...
    def _finish_all(self, may_yield: bool) -> None: ...


class Question(NamedTuple):
    """A question that the ranks are to answer: its handle; units, by their members; then further
    contributions of single parameters.
    """

    handle: int
    units: Sequence[list[torch.Tensor]]
    further: Sequence[torch.Tensor]


class MissingGradients:
    """Those of one optimizer, which may be a weak proxy. Only sums and averages can be completed, as zeros
    change any other result.

    Attributes:
        set_aside: by parameter of which a further contribution is under way, what that is added to.
        hooks: by parameter that this rank has lacked once, the hook that sets its gradient aside.
        filled: parameters that have got zeros in this step.
    """

    def __init__(self, optimizer: _Optimizer) -> None:
        self._of = optimizer
        self.set_aside: dict[torch.Tensor, torch.Tensor] = {}
        self.hooks: dict[torch.Tensor, Any] = {}
        self.filled: set[torch.Tensor] = set()

    def ask_after_pass(self) -> Question | None:
        """What this rank lacks at the end of a pass; no question if it lacks nothing or nothing is due."""
        life = self._of._life
        if self._of._reducer.op not in (Average, Sum) or not life.has_due():
            return None
        return self.ask(list(life.left_over(self._of._takes_part)), life.open())

    def ask(
        self, units: Sequence[list[torch.Tensor]], further: Sequence[torch.Tensor] = ()
    ) -> Question | None:
        """Ask what becomes of these; nothing is asked about nothing."""
        names = [self._operation_of(members) for members in units]
        has_part = [self._of._life.has_part(members) for members in units] + [False] * len(further)
        for parameter in further:
            names.append(self._operation_of([parameter], self._of._life.contributions[parameter]))
        if not names:
            return None
        member = basics.member()
        question = f"missing_gradients.{basics.rank()}.{next(_numbers)}"
        handle = member.engine.missing(question, names, has_part, member.id_of(self._of.process_set))
        return Question(handle, units, further)

    def _operation_of(self, members: list[torch.Tensor], again: int = 0) -> str:
        first, of = members[0], self._of
        grouped = not again and of._life.is_grouped(first)
        return of._reducer.operation_name(of._parameter_names[first], first, grouped, again)

    def take_part(self, question: Question | None, may_yield: bool) -> bool:
        """Wait for answers, and start what other ranks have started; whether there was any.

        Where it ``may_yield``, ranks that wait for this one elsewhere are found out, and this one goes on.
        """
        has_started = False
        while question is not None:
            decisions = self._decisions(question, may_yield)
            units = list(zip(question.units, decisions, strict=False))
            further = list(zip(question.further, decisions[len(units) :], strict=True))
            for members, decision in units:
                if decision == Decision.START:
                    self._complete(members)
            for parameter, decision in further:
                if decision == Decision.START:
                    self._complete_further(parameter)
            has_started = has_started or Decision.START in decisions
            question = self.ask(_to_ask_again(units), _to_ask_again(further))
        return has_started

    def _decisions(self, question: Question, may_yield: bool) -> list[int]:
        engine = basics.member().engine
        while may_yield and not waiting.wait_or_yield(engine, question.handle):
            pass  # rank 0 has it yield by answering
        return list(waiting.wait(engine, question.handle).sizes)

    def _complete(self, members: list[torch.Tensor]) -> None:
        """Take part with zeros, or with what there is of an accumulation."""
        for member in members:
            if member not in self.hooks and member.requires_grad:
                self.hooks[member] = before_accumulation.register(self, member)
            if member.grad is None:
                self._of._reducer.fill_missing(member)
                self.filled.add(member)
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

    @torch.no_grad()
    def add_further(self, members: Iterable[torch.Tensor]) -> None:
        """After their reduction: to what was set aside, if that is what they are."""
        for parameter in members:
            earlier = self.set_aside.pop(parameter, None)
            if earlier is not None:
                further = parameter.grad
                assert further is not None
                parameter.grad = earlier + further if earlier.is_sparse else earlier.add_(further)

    def settle_further(self) -> None:
        """In a step: take part in further contributions until no rank has any.

        Only after a pass in which some rank lacked something: then all ranks know it.
        """
        life = self._of._life
        while life.contributions:
            was_under_way = life.is_under_way()
            question = self.ask([], life.open())
            has_started = self.take_part(question, may_yield=False)
            self._of._finish_all(may_yield=False)
            if not has_started and not was_under_way:
                break


def _to_ask_again(answered: list[tuple[T, int]]) -> list[T]:
    return [one for one, decision in answered if decision == Decision.ASK_AGAIN]
