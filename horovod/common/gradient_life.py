"""The life of an optimizer's gradients from one step to the next: a machine that knows no tensors and no I/O.

Whoever uses it tells it of events (a gradient has been accumulated, a pass has ended, other ranks have
answered, a reduction is over, a step has been made), and it says what is to be reduced. A gradient is

    WAITING   until its parameter has been through as many backward passes as a step has;
    STARTED   while it is being reduced, with all others of its group;
    REDUCED   until the step, or until it is given up.

A rank whose pass ends without some gradients, though others of the step are due, asks the other ranks about
them. If one of them has started a reduction, this rank takes part in it, with zeros or with what it has, and
the gradient is *completed* on all ranks: in a later pass of the same step a rank may still compute what it
lacked. This is a further *contribution*: it is reduced under another name, and the result is added.

    pass ends -> questions() -> the ranks' answers -> units to start -> reductions are over -> open()
    step      -> left() are started, and further contributions are asked for until no rank has any
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

__all__ = ["Decision", "GradientLife", "Life", "TooManyPasses"]

P = TypeVar("P", bound=Hashable)


class Life(enum.Enum):
    """The state of a gradient."""

    WAITING = "waiting"
    STARTED = "started"
    REDUCED = "reduced"


class Decision(enum.IntEnum):
    """The ranks' decision about a gradient that one of them lacks; the core's MissingGradient."""

    NOT_YET = 0  # others wait for this rank elsewhere: it goes on, and asks again or starts it in the step
    START = 1  # some rank has started it
    NOBODY_HAS_IT = 2
    ASK_AGAIN = 3  # undecided; the answer came early, because other ranks wait for the gradients to start


class TooManyPasses(Exception):
    """A gradient has been accumulated that is being reduced, or was to be reduced before."""


class GradientLife(Generic[P]):
    """Of the gradients of one optimizer, each known by its parameter.

    Attributes:
        passes: backward passes of a step.
        left: by parameter, how many of them are left until it is due.
        contributions: by parameter of a completed gradient, how many have been started in this step.
    """

    def __init__(self, passes: int) -> None:
        self.passes = passes
        self.left: dict[P, int] = {}
        self.contributions: dict[P, int] = {}
        self._groups: dict[P, list[P]] = {}
        self._life: dict[P, Life] = {}  # a gradient that is not in it is waiting
        self._further: set[P] = set()  # whose further contribution is under way

    def add(self, parameter: P) -> None:
        """A parameter takes part from now on."""
        self.left[parameter] = self.passes

    def group(self, members: list[P]) -> None:
        """These are reduced together from now on."""
        self._groups.update(dict.fromkeys(members, members))

    def ungroup(self) -> None:
        """Every parameter is reduced by itself from now on."""
        self._groups.clear()

    def groups(self) -> list[list[P]]:
        """All groups, each once."""
        return list({id(members): members for members in self._groups.values()}.values())

    def unit(self, parameter: P) -> list[P]:
        """The parameters that are reduced together with this one, itself included."""
        return self._groups.get(parameter, [parameter])

    def is_grouped(self, parameter: P) -> bool:
        """Whether it is reduced as one of a group, which may have no other member."""
        return bool(self._groups) and parameter in self._groups

    def of(self, parameter: P) -> Life:
        """The state of its gradient."""
        return self._life.get(parameter, Life.WAITING)

    def is_under_way(self) -> bool:
        """Whether anything is being reduced."""
        return bool(self._further) or Life.STARTED in self._life.values()

    def being_reduced(self) -> Iterator[P]:
        """Parameters whose first contribution is being reduced."""
        return (parameter for parameter, life in self._life.items() if life is Life.STARTED)

    def further(self) -> Iterator[P]:
        """Parameters of which a further contribution is being reduced."""
        return iter(self._further)

    def accumulated(self, parameter: P) -> list[P]:
        """A backward pass has accumulated a gradient; returns the unit that is now due, or nothing.

        TooManyPasses if it is being reduced or reduced, or was due in the pass before.
        """
        left = self.left[parameter] - 1
        if left < 0 or parameter in self._life:
            raise TooManyPasses
        self.left[parameter] = left
        if not self._groups:
            return [] if left else [parameter]
        members = self.unit(parameter)
        return members if all(self.left[member] == 0 for member in members) else []

    def started(self, members: Iterable[P]) -> None:
        """The first contribution of these is being reduced."""
        for member in members:
            self._life[member] = Life.STARTED

    def reduced(self, members: Iterable[P], is_completed: bool) -> None:
        """That, or a further contribution, is over; ``is_completed``: some rank lacked it."""
        for member in members:
            self._life[member] = Life.REDUCED
            self._further.discard(member)
            if is_completed:
                self.contributions.setdefault(member, 1)

    def started_further(self, parameter: P) -> int:
        """A further contribution is being reduced; returns its number, the first one's being 0."""
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
        """Whether there are some gradients of a unit that is not started: of a part of a group, or of fewer
        passes than a step has, though others of the step are due.
        """
        return any(self.left[member] < self.passes for member in unit)

    def has_due(self) -> bool:
        """Whether a step's passes are through for some parameter, so that others that wait are missing."""
        return bool(self._life) or 0 in self.left.values()

    def has_begun(self) -> bool:
        """Whether anything has been reduced in this step, or is; the same on all ranks after a pass."""
        return bool(self._life)

    def forget(self, parameter: P) -> None:
        """Let a gradient wait again: the script has skipped its step."""
        self._life.pop(parameter, None)
        self.contributions.pop(parameter, None)
        self._further.discard(parameter)
        self.left[parameter] = self.passes

    def end_step(self) -> None:
        """Begin the next step."""
        for parameter in self.left:
            self.left[parameter] = self.passes
        self._life.clear()
        self.contributions.clear()
        self._further.clear()
