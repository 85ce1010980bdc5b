"""The existing name that a mistyped one probably means."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["closest", "did_you_mean"]

_LIKENESS = 0.7  # of difflib: bti8 means bit8, mine means none
_SHORTEST_BEGINNING = 4  # least number of letters of an abbreviation


def closest(word: str, known: Iterable[str]) -> str:
    """The known name most similar to the word, "" if none is. Ignores case, dashes and underscores."""
    by_form = {_form(name): name for name in known}
    form = _form(word)
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


def _form(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_").removeprefix("horovod_")
