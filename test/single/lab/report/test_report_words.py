"""The report has the same sentences in both languages, and the code uses each of them."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest
from refusals import refused

from horovod.lab import errors
from horovod.lab.environment import entries
from horovod.lab.report import tables
from horovod.lab.report.words import LANGUAGES, Words

REPORT = Path(tables.__file__).parent
BUILT = re.compile(r"(entry|section)_\w+|.*_(one|many|title|caption)")  # keys that the code composes


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def test_both_languages_have_the_same_keys() -> None:
    english, chinese = LANGUAGES["en"], LANGUAGES["zh"]
    assert list(english) == list(chinese)


@pytest.mark.parametrize("key", LANGUAGES["en"])
def test_both_languages_name_the_same_values(key: str) -> None:
    assert placeholders(LANGUAGES["en"][key]) == placeholders(LANGUAGES["zh"][key])


def test_chinese_is_chinese() -> None:
    """Sentences have Chinese characters, and no half-width comma or stop after one."""
    for key, text in LANGUAGES["zh"].items():
        if LANGUAGES["en"][key].endswith("."):
            assert re.search(r"[\u4e00-\u9fff]", text), key
        assert not re.search(r"[\u4e00-\u9fff][,.;:!?]", text), key


def test_every_text_is_used() -> None:
    files = [*REPORT.glob("*.py"), REPORT / "report.html.jinja"]
    used = " ".join(path.read_text(encoding="utf-8") for path in files if not path.name.startswith("words_"))
    unused = [
        key
        for key in LANGUAGES["en"]
        if not BUILT.fullmatch(key) and f'"{key}"' not in used and f"'{key}'" not in used
    ]
    assert not unused


def test_every_entry_of_the_environment_has_a_name() -> None:
    for name in (*entries.HARDWARE, *entries.SOFTWARE):
        for language in LANGUAGES:
            assert f"entry_{name}" in Words(language), (language, name)


def test_an_unknown_language_is_refused_by_name() -> None:
    with refused(errors.no_language, got="tlh", choices=["en", "zh"]):
        Words("tlh")
