"""A state machine for an optimizer's gradients between steps. It knows no tensors and does no I/O.

The caller reports events: a gradient was accumulated, a pass ended, other ranks answered, a reduction
finished, a step was made. The machine answers which gradients to reduce. A gradient is

    WAITING   until its parameter has been through as many backward passes as a step has;
    STARTED   while it is being reduced, with all others of its group;
    REDUCED   until the step, or until it is given up.

If a rank's pass ends without some gradients while others of the step are due, it asks the other ranks about
them. If one of them has started a reduction, this rank takes part, with zeros or with its partial gradient,
and the gradient is *completed* on all ranks. In a later pass of the same step a rank may still compute the
part it lacked. That part is a further *contribution*: it is reduced under another name, and the result is
added.

    pass ends -> questions to other ranks -> answers -> units to start -> reductions are over -> open()
    step      -> left_over() is started, and further contributions are reduced until no rank has any
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

P = TypeVar("P", bound=Hashable)


class Life(enum.Enum):
    WAITING = "waiting"
    STARTED = "started"
    REDUCED = "reduced"


class Decision(enum.IntEnum):
    """The ranks' decision about a gradient that one of them lacks; the core's MissingGradient."""

    NOT_YET = 0  # others wait for this rank elsewhere: it continues, and asks again or starts it in the step
    START = 1  # some rank has started it
    NOBODY_HAS_IT = 2
    ASK_AGAIN = 3  # undecided: the answer came early, because other ranks wait for the gradients to start


class TooManyPasses(Exception):
    """A gradient was accumulated that is being reduced, or was already due."""


class GradientLife(Generic[P]):
    """The states of one optimizer's gradients, by parameter. Not thread-safe."""

    def __init__(self, passes: int) -> None:
        self.passes = passes  # backward passes of a step
        self.left: dict[P, int] = {}  # the number of passes until a gradient is due
        self.contributions: dict[P, int] = {}  # of a completed gradient, the number started in this step
        self._groups: dict[P, list[P]] = {}
        self._life: dict[P, Life] = {}  # a gradient that is not in it is waiting
        self._further: set[P] = set()  # parameters whose further contribution is being reduced

    def add(self, parameter: P) -> None:
        self.left[parameter] = self.passes

    def group(self, members: list[P]) -> None:
        """Reduce these parameters together from now on."""
        self._groups.update(dict.fromkeys(members, members))

    def ungroup(self) -> None:
        """Reduce every parameter by itself from now on."""
        self._groups.clear()

    def groups(self) -> list[list[P]]:
        return list({id(members): members for members in self._groups.values()}.values())

    def unit(self, parameter: P) -> list[P]:
        """The parameters that are reduced together with this one, including itself."""
        return self._groups.get(parameter, [parameter])

    def is_grouped(self, parameter: P) -> bool:
        """Whether it is reduced as part of a group, which may have no other member."""
        return bool(self._groups) and parameter in self._groups

    def of(self, parameter: P) -> Life:
        return self._life.get(parameter, Life.WAITING)

    def is_under_way(self) -> bool:
        return bool(self._further) or Life.STARTED in self._life.values()

    def being_reduced(self) -> Iterator[P]:
        """Parameters whose first contribution is being reduced."""
        return (parameter for parameter, life in self._life.items() if life is Life.STARTED)

    def further(self) -> Iterator[P]:
        """Parameters whose further contribution is being reduced."""
        return iter(self._further)

    def accumulated(self, parameter: P) -> list[P]:
        """Note that a pass accumulated a gradient. Returns the unit that is now due, or []. TooManyPasses."""
        left = self.left[parameter] - 1
        if left < 0 or parameter in self._life:
            raise TooManyPasses
        self.left[parameter] = left
        if not self._groups:
            return [] if left else [parameter]
        members = self.unit(parameter)
        return members if all(self.left[member] == 0 for member in members) else []

    def started(self, members: Iterable[P]) -> None:
        for member in members:
            self._life[member] = Life.STARTED

    def reduced(self, members: Iterable[P], is_completed: bool) -> None:
        """Note that a contribution is reduced; ``is_completed``: some rank lacked it."""
        for member in members:
            self._life[member] = Life.REDUCED
            self._further.discard(member)
            if is_completed:
                self.contributions.setdefault(member, 1)

    def started_further(self, parameter: P) -> int:
        """Note that a further contribution is being reduced. Returns its number; the first one's is 0."""
        number = self.contributions[parameter]
        self.contributions[parameter] = number + 1
        self._further.add(parameter)
        return number

    def takes_further(self, parameter: P) -> bool:
        """Whether another gradient of the parameter is a further contribution to its step."""
        is_over = self.of(parameter) is Life.REDUCED and parameter not in self._further
        return is_over and parameter in self.contributions

    def open(self) -> list[P]:
        """Parameters of which some rank may compute a further contribution; the same on all ranks."""
        return [parameter for parameter in self.contributions if self.takes_further(parameter)]

    def left_over(self, required: Callable[[P], bool] = lambda parameter: True) -> Iterator[list[P]]:
        """Units that have not been started in this step, each once."""
        seen: set[P] = set()
        for parameter in list(self.left):
            if parameter in self._life or parameter in seen or not required(parameter):
                continue
            members = self.unit(parameter)
            seen.update(members)
            yield members

    def has_part(self, unit: list[P]) -> bool:
        """Whether a unit that is not started has some gradients: of part of a group, or of fewer passes."""
        return any(self.left[member] < self.passes for member in unit)

    def has_due(self) -> bool:
        """Whether some parameter has had all passes of a step, so that waiting gradients are missing."""
        return bool(self._life) or 0 in self.left.values()

    def has_begun(self) -> bool:
        """Whether a gradient has been reduced in this step, or is; the same on all ranks after a pass."""
        return bool(self._life)

    def forget(self, parameter: P) -> None:
        """Let a gradient wait again: the script has skipped its step."""
        self._life.pop(parameter, None)
        self.contributions.pop(parameter, None)
        self._further.discard(parameter)
        self.left[parameter] = self.passes

    def end_step(self) -> None:
        for parameter in self.left:
            self.left[parameter] = self.passes
        self._life.clear()
        self.contributions.clear()
        self._further.clear()
