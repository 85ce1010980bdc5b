"""The two languages' templates of a report differ in nothing but their wording."""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from horovod.lab import errors, report
from horovod.lab.environment import collect
from horovod.lab.report import LANGUAGES
from horovod.lab.report.words import Names, template

FOLDER = Path(report.__file__).parent
SOURCES = {language: (FOLDER / f"{language}.jinja").read_text(encoding="utf-8") for language in LANGUAGES}
COMPARED = re.compile(r'(==|!=|\w\() ?"(\w+)"')  # a text that is a value, not words


def labels(language: str) -> dict[str, Any]:
    return Names([], language).labels


def flat(texts: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, text in texts.items():
        yield from flat(text, f"{before}{key}.") if isinstance(text, Mapping) else [(before + key, text)]


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def decisions(language: str) -> list[tuple[list[str], str]]:
    """Each condition and loop of a template, after the values that are written before it, without words."""
    found: list[tuple[list[str], str]] = []
    values: list[str] = []
    source = SOURCES[language]
    for tag in re.findall(r"{%.*?%}|{{.*?}}", source[source.index("{% macro report") :], re.DOTALL):
        wordless = re.sub(r'"[^"]*"', "words", COMPARED.sub(r"\1\2", " ".join(tag.split())))
        if tag.startswith("{{"):
            values.append(wordless)
        else:
            found.append((sorted(values), wordless))
            values = []
    return found


def test_both_languages_decide_alike_and_name_the_same_values() -> None:
    english = decisions("en")
    assert len(english) > 100
    assert english == decisions("zh")


def test_both_languages_have_the_same_labels() -> None:
    english, chinese = dict(flat(labels("en"))), dict(flat(labels("zh")))
    assert list(english) == list(chinese)
    for key in english:
        assert placeholders(english[key]) == placeholders(chinese[key]), key


def test_chinese_is_chinese() -> None:
    """No half-width comma or stop after a Chinese character, and no text without one."""
    assert not re.findall(r"[\u4e00-\u9fff][,.;!?]", SOURCES["zh"])
    body = SOURCES["zh"].partition("{% macro report() %}")[2]
    for line in re.sub(r"{[%{#].*?[%}#]}", "", body, flags=re.DOTALL).splitlines():
        if line.strip() and re.search(r"[a-z]", line):
            assert re.search(r"[\u4e00-\u9fff]", line), line


def test_every_label_is_used() -> None:
    files = [*FOLDER.glob("*.py"), FOLDER / "report.html.jinja"]
    code = " ".join(path.read_text(encoding="utf-8") for path in files)
    unused = [key for key in labels("en") if f'"{key}"' not in code and f"labels.{key}" not in code]
    assert not unused


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_entry_of_the_environment_has_a_name(language: str) -> None:
    assert list(labels(language)["entries"]) == [entry.name for entry in collect().entries]


def test_an_unknown_language_is_refused_by_name() -> None:
    with refused(errors.no_language, got="tlh", choices=["en", "zh"]):
        template("tlh")
