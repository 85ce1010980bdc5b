"""Files that docs/architecture.md and CONTRIBUTING.md name exist and define the names given there; pictures
exist too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "assets" / "way_of_a_gradient.svg"
BASES = ["", "docs", "horovod", "horovod/native"]
BASES += [f"horovod/{folder}" for folder in ("runner", "torch", "torch/ddp", "tune")]
MADE_BY_THE_BUILD = {"cuda_runtime.h"}  # of CUDA: the page says that the emulation has one, too
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"[\w./]+\.(?:h|cc|cu|cuh|py|pyi|md|txt)|[\w.]+(?:/[\w.]+)*/|(?:horovod|test|docs)/[\w/]+")
NAME_IN_FILE = re.compile(r"`([\w:.]+)`\s+\(`([\w./]+)`\)")
QUESTION = re.compile(r"^\d+\. \*\*[^*]+\?\*\*(?:.+\n)+?(?=\d+\. |\n)", re.MULTILINE)


def found(name: str) -> Path | None:
    """The file or folder that the page means: paths may begin in any of BASES."""
    paths = (ROOT / base / name for base in BASES)
    return next((path for path in paths if path.exists()), None)


def files_in(text: str) -> list[str]:
    return [code for code in CODE.findall(text) if FILE.fullmatch(code) and code not in MADE_BY_THE_BUILD]


def missing(text: str) -> Iterator[str]:
    """Complaints about files and names in the text that do not exist."""
    for name in files_in(text):
        if found(name) is None:
            yield f"there is no {name}"
    for name, file in NAME_IN_FILE.findall(text):
        path = found(file)
        last = re.split(r"::|\.", name)[-1]
        if path is None or not re.search(rf"\b{last}\b", path.read_text(encoding="utf-8")):
            yield f"{file} has no {name}"


def section(title: str) -> str:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")
    assert rest, f"the page has no section {title!r}"
    return rest.partition("\n## ")[0]


def test_what_the_page_names_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(files_in(text)) > 80
    assert len(NAME_IN_FILE.findall(text)) > 40
    assert list(missing(text)) == []


def test_what_the_recipes_name_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    files = files_in(text)
    assert len(files) > 25
    assert [name for name in files if found(name) is None] == []
    for recipe in ("A setting", "A codec", "A pattern of allreduce", "A transport", "An operation"):
        _, _, rest = text.partition(f"\n### {recipe}\n")
        lines = rest.partition("\n##")[0].splitlines()
        assert 5 < len(lines) < 30, f"{recipe}: one screen"


def test_what_is_not_there_is_found() -> None:
    text = "`Layout` (`collective/layout.h`), `Out`\n(`collective/layout.h`), `collective/out.h`, `test/sing`"
    assert list(missing(text)) == [
        "there is no collective/out.h",
        "there is no test/sing",
        "collective/layout.h has no Out",
    ]


def test_each_of_ten_questions_is_answered_by_a_file() -> None:
    questions = QUESTION.findall(section("Ten questions") + "\n\n")
    assert len(questions) == 10
    for question in questions:
        assert NAME_IN_FILE.search(question), f"no file and name answers {question}"


def test_the_page_says_where_what_is_in_its_picture_is() -> None:
    texts = " ".join(re.findall(r"<text[^>]*>([^<]+)", PICTURE.read_text(encoding="utf-8")))
    in_picture = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b|\w+(?=\(\))|\w+::\w+", texts)) - {"backward"}
    assert len(in_picture) >= 10
    on_page = {name for name, _ in NAME_IN_FILE.findall(PAGE.read_text(encoding="utf-8"))}
    assert in_picture - on_page == set()
