"""Words that have been retired stay retired: docs/architecture.md says which are used instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RETIRED = {
    "verdict": "response, or conclusion",
    "obey": "carry out",
    "workbench": "executor context",
    "surroundings": "engine context",
    "attention": "progress callback",
    "vigil": "liveness monitor",
    "gathering": "submission queue",
    "crossing": "message reduction",
    "deposit": "send buffer",
    "landing": "receive buffer",
    "parcel": "payload",
    "delivery": "transfer",
    "courier": "sender",
    "journey": "transfer",
    "leg": "part of a route",
    "desk": "queue",
    "unsaid": "unset",
}
OTHERS_WORDS = {  # torch's, English, and a deprecated name
    "benchmarks/convergence_tasks.py": "attention",
    "docs": "gathering",
    "horovod/torch/compression/__init__.py": "unsaid",
}
SUFFIXES = {".py", ".pyi", ".h", ".cc", ".cu", ".cuh", ".md"}
FOLDERS = ("horovod", "benchmarks", "examples", "scripts", "docs")


def words_of(text: str) -> set[str]:
    """All words, in lower case; of a name, its parts: "LandingBuffer", "landing_bytes_", "kLandings"."""
    return {part.lower() for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", text)}


def retired_in(text: str) -> Iterator[str]:
    words = words_of(text)
    for word in RETIRED:
        if {word, f"{word}s", f"{word}ed"} & words:
            yield word


def files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES)
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md"))


def test_retired_words_are_not_used() -> None:
    found = []
    for path in files():
        name = str(path.relative_to(ROOT))
        allowed = {word for place, word in OTHERS_WORDS.items() if name.startswith(place)}
        text = f"{name}\n{path.read_text(encoding='utf-8')}"
        found += [f"{name}: {word}; say {RETIRED[word]}" for word in retired_in(text) if word not in allowed]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("text", ["kLandings = 16", "std::byte* landing(int)", "LandingBuffer", "a landing"])
def test_a_retired_word_is_found(text: str) -> None:
    assert list(retired_in(text)) == ["landing"]


@pytest.mark.parametrize("text", ["legal legend", "the desktop", "an island", "outlandish"])
def test_words_that_contain_one_are_not(text: str) -> None:
    assert list(retired_in(text)) == []
