"""Errors that carry facts, their sentences, and the name that a mistyped one probably means.

A layer has its sentences in one file, ``errors.py``, a row each: the error's class, its cause, its remedy.

    not_a_tensor = WrongArgument.says("{parameter} is a {got}, not a tensor", "pass torch.as_tensor() of it")

Code raises a row with the facts that its braces name, and may add others:

    raise errors.not_a_tensor(parameter="root", got=type_name(root))

The error keeps them, so programs and tests compare ``code`` (the row's name) and ``facts``, not words. Braces
may end in ``:ranks`` (``rank 1``; ``ranks 1, 2``), ``:listed`` (``a, b``) or ``:by_rank``, of a mapping from
ranks to values (``rank 0: 64; ranks 1, 2: 128``).
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound="Explained")
_MOST_SHOWN = 16  # ranks that a sentence names
_LONGEST = 200  # characters of a fact that is not plain
_LIKENESS = 0.7  # of difflib: bti8 means bit8, mine means none
_SHORTEST_BEGINNING = 4  # least number of letters of an abbreviation


class Explained(Exception):
    """Base of errors that carry facts.

    Attributes:
        code: the name of the sentence, as ``not_a_tensor``; "" for an error made of text alone.
        facts: the values of the sentence, by name.
        remedy: what to do, as a clause; "" if unknown.
    """

    def __init__(
        self, *arguments: object, code: str = "", facts: Mapping[str, Any] | None = None, remedy: str = ""
    ) -> None:
        super().__init__(*arguments)
        self.code, self.facts, self.remedy = code, dict(facts or {}), remedy

    @property
    def tensor(self) -> str:
        """Name of the tensor or operation that the error is about; "" for none."""
        return str(self.facts.get("tensor", ""))

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that the error is about: lost, silent or different ones; () for none."""
        found = self.facts.get("ranks")
        return tuple(found) if isinstance(found, list | tuple) else ()

    @property
    def values(self) -> dict[int, str]:
        """Each rank's value, if ranks differ."""
        found = self.facts.get("values")
        return dict(found) if isinstance(found, Mapping) else {}

    @classmethod
    def says(cls: type[K], cause: str, remedy: str = "") -> Sentence[K]:
        """A row of a layer's sentences."""
        return Sentence(cls, cause, remedy, sys._getframe(1).f_globals)


class Sentence(Generic[K]):
    """A row of a layer's sentences. Calling it with facts makes an error."""

    def __init__(self, kind: type[K], cause: str, remedy: str, layer: dict[str, Any]) -> None:
        self.kind, self.cause, self.remedy, self._layer = kind, cause, remedy, layer

    @property
    def code(self) -> str:
        """The row's name in its layer; "" outside of one."""
        return next((name for name, row in self._layer.items() if row is self), "")

    @property
    def fields(self) -> set[str]:
        """Names of the facts in the text's braces."""
        parts = [*string.Formatter().parse(self.cause), *string.Formatter().parse(self.remedy)]
        return {name.partition(".")[0].partition("[")[0] for _, name, _, _ in parts if name}

    def __call__(self, **facts: Any) -> K:
        cause, remedy = (_FORMATTER.vformat(text, (), facts) for text in (self.cause, self.remedy))
        text = f"{cause}; {remedy}" if remedy else cause
        plain = {name: _plain(fact) for name, fact in facts.items()}
        return self.kind(text, code=self.code, facts=plain, remedy=remedy)


def ranks_text(ranks: Iterable[int]) -> str:
    """``rank 1``, or ``ranks 1, 2``; of more than 16, the first 16 and the number of the others."""
    members = list(ranks)
    more = f" and {len(members) - _MOST_SHOWN} more" if len(members) > _MOST_SHOWN else ""
    return f"rank{'' if len(members) == 1 else 's'} {', '.join(map(str, members[:_MOST_SHOWN]))}{more}"


def by_rank(values: Mapping[int, object]) -> str:
    """``rank 0: 64; ranks 1, 2: 128``: each value once, in the order of the first rank that has it."""
    members: dict[str, list[int]] = {}
    for rank, value in values.items():
        members.setdefault(str(value), []).append(rank)
    parts = [f"{ranks_text(ranks)}: {value}" for value, ranks in members.items()]
    more = [f"{len(parts) - _MOST_SHOWN} more values"] if len(parts) > _MOST_SHOWN else []
    return "; ".join(parts[:_MOST_SHOWN] + more)


def class_name(kind: type) -> str:
    """A class for errors: with its module, as names repeat between modules; builtins without."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def type_name(value: object) -> str:
    return class_name(type(value))


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error, the error that it was raised ``from``, and so on."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__


def facts_of(cause: BaseException, **own: Any) -> dict[str, Any]:
    """The facts of an error that passes on another, which is its cause.

    They are the cause's facts, its text as ``why``, its code as ``because``, and its class as
    ``cause_class``. ``own``: facts of the new error, which take precedence. If the cause has no facts, they
    come from the first error with facts among its own causes.
    """
    for each in causes(cause):
        if isinstance(each, Explained):
            kind = {"cause_class": type(each).__name__}  # unless it has passed on another
            return {**kind, **each.facts, "because": each.code, "why": str(cause), **own}
    return {"why": str(cause), **own}


def closest(word: str, known: Iterable[str]) -> str:
    """The known name most similar to the word, "" if none is. Ignores case, dashes and underscores."""
    by_form = {_spelling(name): name for name in known}
    form = _spelling(word)
    if form in by_form:
        return by_form[form]
    import difflib  # here, because most commands have no mistyped name

    found = difflib.get_close_matches(form, by_form, 1, _LIKENESS)
    if not found and len(form) >= _SHORTEST_BEGINNING:
        begun = [name for name in by_form if name.startswith(form) or name.endswith(f".{form}")]
        found = begun if len(begun) == 1 else []
    return by_form[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message, "; did you mean NAME?"; "" if no name is similar."""
    name = closest(word, known)
    return f"; did you mean {name}?" if name else ""


def _spelling(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_").removeprefix("horovod_")


def _plain(fact: Any) -> Any:
    """The fact, if any process can unpickle it; else its text, which keeps no object alive."""
    if fact is None or isinstance(fact, str | int | float | bytes):
        return fact
    if isinstance(fact, list | tuple):
        return type(fact)(map(_plain, fact)) if type(fact) in (list, tuple) else [*map(_plain, fact)]
    if isinstance(fact, Mapping):
        return {_plain(name): _plain(value) for name, value in fact.items()}
    return repr(fact)[:_LONGEST]


_FORMS: dict[str, Callable[[Any], str]] = {
    "ranks": ranks_text, "by_rank": by_rank, "listed": lambda parts: ", ".join(map(str, parts)),
}  # fmt: skip


class _Formatter(string.Formatter):
    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(str(key), f"{{{key}}}")  # a missing fact must not replace this error by another

    def format_field(self, value: Any, spec: str) -> str:
        form = _FORMS.get(spec)
        try:
            return form(value) if form else format(value, spec)
        except (AttributeError, TypeError, ValueError):
            return str(value)


_FORMATTER = _Formatter()
