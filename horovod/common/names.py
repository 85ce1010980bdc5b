"""Which of the names that exist is meant by one that does not."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["closest", "did_you_mean"]

_LIKENESS = 0.7  # of difflib: bti8 is meant for bit8, mine is not for none
_SHORTEST_BEGINNING = 4  # letters by which a longer name may be begun


def closest(word: str, known: Iterable[str]) -> str:
    """The known name that is most like the word, "" where none is; case, dashes, underscores do not count."""
    by_form = {_form(name): name for name in known}
    form = _form(word)
    if form in by_form:
        return by_form[form]
    import difflib  # here: most commands mistype nothing

    found = difflib.get_close_matches(form, by_form, 1, _LIKENESS)
    if not found and len(form) >= _SHORTEST_BEGINNING:
        begun = [name for name in by_form if name.startswith(form) or name.endswith(f".{form}")]
        found = begun if len(begun) == 1 else []
    return by_form[found[0]] if found else ""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """As "; did you mean NAME?", the end of a message; "" where nothing is like the word."""
    name = closest(word, known)
    return f"; did you mean {name}?" if name else ""


def _form(name: str) -> str:
    return name.lower().lstrip("-").replace("-", "_").removeprefix("horovod_")
