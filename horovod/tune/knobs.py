"""Knobs to tune (a setting's variable and the texts to try), and configurations of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.tune import errors

__all__ = ["Configuration", "Knob", "Space"]

# knob's name -> the text of its variable
Configuration = Mapping[str, str]


@dataclass(frozen=True)
class Knob:
    """A setting and the values to try.

    ``choices`` are in order if they have one, so that neighbours differ least. The value that a job was given
    is tried too, even if it is not among them.
    """

    name: str  # the variable, such as HOROVOD_CYCLE_TIME
    choices: tuple[str, ...]
    default: str
    about: str = ""  # a few words, for the table that users see

    def __post_init__(self) -> None:
        if not self.choices or len(set(self.choices)) != len(self.choices):
            raise errors.same_choices(knob=self.name, choices=self.choices)


class Space:
    """The knobs of a job, and the configurations that can be made of them."""

    def __init__(self, knobs: Sequence[Knob], start: Configuration) -> None:
        """``start``: the job's values, by knob's name. A knob that it lacks has its default.

        Raises:
            ValueError: a name occurs twice, or ``start`` has an unknown one.
        """
        self.knobs = tuple(knobs)
        names = [knob.name for knob in knobs]
        if len(set(names)) != len(names):
            raise errors.same_names(names=names)
        if unknown := sorted(set(start) - set(names)):
            raise errors.no_knob(names=unknown, choices=names)
        self.start = self.complete(start)
        self._choices = {knob.name: self._of(knob) for knob in knobs}

    def _of(self, knob: Knob) -> tuple[str, ...]:
        own = self.start[knob.name]
        if own in knob.choices:
            return knob.choices
        try:
            ordered = sorted((*knob.choices, own), key=float)
        except ValueError:
            ordered = [*knob.choices, own]
        return tuple(ordered)

    def complete(self, some: Configuration) -> dict[str, str]:
        """Add the defaults of missing knobs, in the order of the knobs."""
        return {knob.name: some.get(knob.name, knob.default) for knob in self.knobs}

    def defaults(self) -> dict[str, str]:
        return self.complete({})

    def changes(self, configuration: Configuration) -> int:
        """Return how many knobs differ from the start."""
        return sum(configuration[name] != text for name, text in self.start.items())

    def choices(self, name: str) -> tuple[str, ...]:
        return self._choices[name]

    def is_in(self, configuration: Mapping[Any, Any]) -> bool:
        """Return whether it has exactly these knobs, with values among their choices."""
        return configuration.keys() == self._choices.keys() and all(
            configuration[name] in choices for name, choices in self._choices.items()
        )

    def all(self, most: int = 5_000) -> list[dict[str, str]]:
        """Return all configurations; beyond ``most``, those that differ in one or two knobs."""
        if math.prod(map(len, self._choices.values())) > most:
            changes = [(name, text) for name, choices in self._choices.items() for text in choices]
            near = ({**self.start, **dict(pair)} for pair in itertools.product(changes, changes))
            return list({tuple(each.items()): each for each in (self.start, *near)}.values())
        every = itertools.product(*self._choices.values())
        return [dict(zip(self._choices, texts, strict=True)) for texts in every]

    def neighbours(self, configuration: Configuration, name: str, distance: int = 1) -> list[dict[str, str]]:
        """Return the configurations in which one knob is ``distance`` choices further up or down."""
        choices = self._choices[name]
        at = choices.index(configuration[name])
        places = [place for place in (at - distance, at + distance) if 0 <= place < len(choices)]
        return [{**configuration, name: choices[place]} for place in places]
