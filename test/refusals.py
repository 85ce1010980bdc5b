"""Check which error was raised by its class and its facts, not by its words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from horovod.common.sentences import Explained, Sentence

__all__ = ["expect", "refused"]


@contextmanager
def refused(sentence: Sentence[Any] | type[Explained], code: str = "", **facts: Any) -> Iterator[Any]:
    """Check that the block raises this error, with these facts (it may have others).

    ``sentence``: a row of a layer's errors.py, or, for the core's, a class of horovod.common.exceptions and
    the ``code``. ``tensor``, ``ranks``, ``values`` and ``remedy`` are looked up as the error's fields.
    In a fact that is a text of others, such as the system's, a compiled regular expression is searched for.
    """
    kind = sentence.kind if isinstance(sentence, Sentence) else sentence
    with pytest.raises(kind) as caught:
        yield caught
    try:
        expect(caught.value, sentence, code, **facts)
    finally:
        del caught  # the error holds this frame and the test's, and so keeps their objects alive


def expect(
    error: BaseException, sentence: Sentence[Any] | type[Explained], code: str = "", **facts: Any
) -> None:
    """Check that an error that was already caught is this one, with these facts, as in ``refused``."""
    kind = sentence.kind if isinstance(sentence, Sentence) else sentence
    assert type(error) is kind, error
    assert error.code == (sentence.code if isinstance(sentence, Sentence) else code or error.code), error
    for name, asked in facts.items():
        found = getattr(error, name) if hasattr(error, name) else error.facts.get(name)
        assert asked.search(str(found)) if isinstance(asked, re.Pattern) else found == asked, (
            name,
            found,
            error,
        )
