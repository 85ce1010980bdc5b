"""At the end of a backward pass: gradients that this rank lacks and others have started to reduce.

Without this, such a gradient would be reduced in step() only, after the script has clipped, unscaled or looked
at gradients that are not those of the other ranks. So this rank asks what becomes of them, and takes part
before ``backward()`` returns. horovod.common.gradient_life decides, and describes how.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from horovod.common import waiting
from horovod.common.basics import basics
from horovod.common.gradient_life import Decision, GradientLife
from horovod.common.process_sets import ProcessSet
from horovod.torch.gradients import GradientReducer
from horovod.torch.reduce_ops import Average, Sum

__all__ = ["MissingGradients", "Question"]

_numbers = itertools.count()  # of the questions of this process


class Question(NamedTuple):
    """What has been asked, with a handle of the engine's: units by their members, then further contributions
    of single parameters.
    """

    handle: int
    units: Sequence[list[torch.Tensor]]
    further: Sequence[torch.Tensor]


class MissingGradients:
    """Those of one optimizer. Only sums and averages can be completed: zeros change no other result.

    ``names`` are those of the parameters; ``is_required`` says which take part in every step; ``start`` begins
    the reduction of a unit with what there is; ``start_further`` that of a further contribution.
    """

    def __init__(
        self,
        life: GradientLife[torch.Tensor],
        reducer: GradientReducer,
        process_set: ProcessSet,
        names: dict[torch.Tensor, str],
        is_required: Callable[[torch.Tensor], bool],
        start: Callable[[list[torch.Tensor]], None],
        start_further: Callable[[torch.Tensor], None],
    ) -> None:
        self._life = life
        self._reducer = reducer
        self._process_set = process_set
        self._names = names
        self._is_required = is_required
        self._start = start
        self._start_further = start_further

    def ask_after_pass(self) -> Question | None:
        """What this rank lacks at the end of a pass; nothing is asked if it lacks nothing, or nothing is due."""
        if self._reducer.op not in (Average, Sum) or not self._life.has_due():
            return None
        return self.ask(list(self._life.left_over(self._is_required)), self._life.open())

    def ask(
        self, units: Sequence[list[torch.Tensor]], further: Sequence[torch.Tensor] = ()
    ) -> Question | None:
        """Ask what becomes of these; nothing is asked about nothing."""
        names = [self._operation_of(members) for members in units]
        for parameter in further:
            names.append(self._operation_of([parameter], self._life.contributions[parameter]))
        if not names:
            return None
        member = basics.member()
        question = f"missing_gradients.{basics.rank()}.{next(_numbers)}"
        handle = member.engine.missing(question, names, member.id_of(self._process_set))
        return Question(handle, units, further)

    def _operation_of(self, members: list[torch.Tensor], again: int = 0) -> str:
        first = members[0]
        grouped = not again and self._life.is_grouped(first)
        return self._reducer.operation_name(self._names[first], first, grouped, again)

    def take_part(self, question: Question | None, may_yield: bool) -> bool:
        """Wait for the answer, and start what other ranks have started; whether there was any.

        Where it ``may_yield``, ranks that wait for this one elsewhere are found out, and the answer is
        NOT_YET.
        """
        decisions = self.decisions(question, may_yield)
        if question is None:
            return False
        for members, decision in zip(question.units, decisions, strict=False):
            if decision == Decision.START:
                self._start(members)
        for parameter, decision in zip(question.further, decisions[len(question.units) :], strict=True):
            if decision == Decision.START:
                self._start_further(parameter)
        return Decision.START in decisions

    def decisions(self, question: Question | None, may_yield: bool) -> list[int]:
        """The answer, about the units and then about the further contributions."""
        if question is None:
            return []
        engine = basics.member().engine
        while may_yield and not waiting.wait_or_yield(engine, question.handle):
            pass  # it is told to yield by the answer
        return list(waiting.wait(engine, question.handle).sizes)
