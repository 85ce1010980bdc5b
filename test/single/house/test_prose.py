"""scripts/check_prose.py, which `make check` runs, notices what is no plain English."""

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
