"""scripts/check_prose.py, which `make check` runs, reports text that is not plain English."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "scripts"))
pytest.importorskip("proselint", reason="the linter of the extra `check` is not installed")
import check_prose  # noqa: E402


def test_a_banned_idiom_fails_the_check(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\n\nThe magnitude belongs\ninto the codes.\n")
    command = [sys.executable, ROOT / "scripts" / "check_prose.py", tmp_path / "page.md"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout == f"{tmp_path}/page.md:3: Write 'belongs in' or the like, not 'belongs\ninto'.\n"


def test_idioms_are_found_in_text_lists_and_tables() -> None:
    idioms = [
        "They live from what they left out.",
        "What no option mends: a slow loader.",
        "It saves more with us than without.",
        "100 % is what nobody reaches.",
        "It runs the the same way.",  # proselint's own
    ]
    lines = [line for idiom in idioms for line in (idiom, f"* {idiom}", f"| a | {idiom} |")]
    found = check_prose.complaints("page.md", "\n".join(lines))
    assert [line.split(": ")[0] for line in found] == [f"page.md:{i + 1}" for i in range(len(lines))], found


def test_code_is_not_prose() -> None:
    page = "`mend` and [a link](mend.md) <!-- mend -->\n\n```sh\nmend\n```\n\n    mend\n\n1 1 and `a` `a`.\n"
    assert check_prose.complaints("page.md", page) == []


def test_a_long_sentence_is_found_where_it_begins() -> None:
    limit = check_prose.LONGEST_SENTENCE
    words = ["`x`", *(f"word{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(limit))]
    longest, too_long = " ".join(words[:limit]), " ".join(words)
    page = f"# Title\n\n{longest}. {longest}.\n\n* {too_long}.\n\n| {too_long} | {too_long} |\n"
    assert check_prose.complaints("page.md", page) == [
        f"page.md:5: {limit + 1} words in a sentence, {limit} at most: * `x` wordaa wordba wordca wordda ..."
    ]


def test_turns_of_phrase_are_counted_in_comments_docstrings_and_pages(tmp_path: Path) -> None:
    texts = {
        "module.py": '"""What it is.\n\nA rank of its own."""\nwhere = "nobody"  # nobody is told\n',
        "header.h": "// Who waits\nint where;  // where it waits\n",
        "page.md": "Those that wait, those who do not. `where` they wait.\n\nHow is this? What is that?\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = check_prose.occurrences([tmp_path / name for name in texts])
    assert list(found.values()) == [2, 1, 1, 1, 1, 1]


def test_a_turn_of_phrase_may_not_become_more_frequent(monkeypatch: pytest.MonkeyPatch) -> None:
    pattern = next(iter(check_prose.PATTERNS))
    monkeypatch.setattr(check_prose, "occurrences", lambda files: {pattern: 3})
    monkeypatch.setattr(check_prose, "PATTERNS", {pattern: (3, "the noun")})
    assert list(check_prose.worse()) == []
    monkeypatch.setattr(check_prose, "PATTERNS", {pattern: (2, "the noun")})
    assert list(check_prose.worse()) == [f"3 of {pattern!r} in pages and sources, 2 before: write the noun"]
