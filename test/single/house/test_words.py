"""House rules about text: no file breaks a rule, and each rule detects a violation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
# docs/architecture.md lists the words to use instead.
RETIRED = {
    *("verdict", "obey", "workbench", "surroundings", "attention", "vigil", "gathering", "crossing"),
    *("deposit", "landing", "parcel", "delivery", "courier", "journey", "leg", "desk", "unsaid"),
}
OTHERS_WORDS = {  # torch's, English, and a deprecated name
    "attention": "benchmarks/convergence_tasks.py",
    "gathering": "docs/",
    "unsaid": "horovod/torch/compression/__init__.py",
}


def word(*words: str) -> str:
    """One of these as a word, or as part of a name: "LandingBuffer", "landing_bytes_", "kLandings"."""
    small, first = "|".join(words), "|".join(each.capitalize() for each in words)
    large = small.upper()
    ends = "(?:s|ed)?(?![a-z])"
    all_large = rf"(?<![A-Z])(?:{large})(?:S|ED)?(?![A-Za-z])"
    return rf"(?<![A-Za-z])(?:{small}){ends}|(?<![A-Z])(?:{first}){ends}|{all_large}"


class Rule(NamedTuple):
    reason: str
    files: str  # folders or files
    pattern: str
    breach: str  # a line that the pattern must find
    home: str = "(?!)"  # pattern of the paths that may contain it


TEXTS = "horovod benchmarks examples scripts docs README.md CONTRIBUTING.md"
NATIVE, WORKFLOWS = "horovod/native", ".github/workflows"
INCLUDE = r'^\s*#\s*include\s*[<"]'
RULES = [
    *(
        Rule(f"{each} is retired", TEXTS, word(each), f"k{each.capitalize()}s", home)
        for each, home in OTHERS_WORDS.items()
    ),
    Rule("these words are retired", TEXTS, word(*RETIRED - {*OTHERS_WORDS}), "a landing"),
    Rule(
        "clang checks hvd::Mutex alone",
        NATIVE,
        r"std::(\w*mutex|lock_guard|unique_lock|scoped_lock|condition_variable)\b",
        "std::mutex m;",
        "horovod/native/base/mutex.h",
    ),
    Rule("the core knows no framework", NATIVE, rf"{INCLUDE}(torch|ATen|c10)/", "#include <torch/all.h>"),
    Rule("MPI has a folder", NATIVE, rf"{INCLUDE}mpi\.h", "#include <mpi.h>", f"{NATIVE}/transport/mpi/"),
    Rule(
        "Python has one", NATIVE, rf"{INCLUDE}(nanobind/|Python\.h)", '#include "Python.h"', f"{NATIVE}/bind/"
    ),
    Rule("CUDA has one", NATIVE, rf"{INCLUDE}cuda", "#include <cuda.h>", f"{NATIVE}/cuda/"),
    Rule(
        "a tag can be moved to other code: a commit cannot, and the comment says its version",
        WORKFLOWS,
        r"uses: (?!actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$)",
        "uses: actions/checkout@v4",
    ),
    Rule("workflows have no secrets", WORKFLOWS, r"secrets\.|pull_request_target", "${{ secrets.TOKEN }}"),
    Rule(
        "tests of pages see blocks in the first column, as ```sh or ```python",
        "README.md CONTRIBUTING.md docs",
        r"^ +```(?:sh|python)\b|^```(?:shell|console|py|python3)\b",
        "  ```sh",
    ),
]
SUFFIXES = {".py", ".pyi", ".h", ".cc", ".cu", ".cuh", ".md", ".yml"}


@cache
def texts(place: str) -> dict[str, str]:
    """Path -> its text, with the path as first line."""
    paths = [ROOT / place] if (ROOT / place).is_file() else sorted((ROOT / place).rglob("*"))
    names = [str(path.relative_to(ROOT)) for path in paths if path.suffix in SUFFIXES]
    return {name: f"{name}\n{(ROOT / name).read_text(encoding='utf-8')}" for name in names}


def breaches(rule: Rule) -> Iterator[str]:
    for place in rule.files.split():
        found = texts(place)
        assert found, f"there is nothing in {place}"
        for name, text in found.items():
            if not re.match(rule.home, name):
                yield from (
                    f"{name}: {match[0].strip()}" for match in re.finditer(rule.pattern, text, re.MULTILINE)
                )


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)
def test_no_file_has_what_a_rule_forbids(rule: Rule) -> None:
    assert list(breaches(rule)) == [], rule.reason


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.reason)
def test_a_breach_is_found(rule: Rule) -> None:
    assert re.search(rule.pattern, rule.breach, re.MULTILINE)


@pytest.mark.parametrize(
    "text", ["kLandings = 16", "std::byte* landing(int)", "LandingBuffer", "a LANDING", "landed"]
)
def test_a_retired_word_is_found(text: str) -> None:
    assert bool(re.search(word("landing", "land"), text))


@pytest.mark.parametrize(
    "text", ["legal legend", "the desktop", "an island", "outlandish", "LEGAL", "kLegend"]
)
def test_words_that_contain_one_are_not(text: str) -> None:
    assert not re.search(word(*RETIRED, "land"), text)
