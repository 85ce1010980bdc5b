"""Holds the pages to plain English: proselint, with the project's word list, and no sentence too long.

Usage: check_prose.py [PAGE...]; without pages it reads all English ones that git knows. Prints what it finds
and exits 1. Code, comments and the targets of links are not prose; tables are not made of sentences.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from proselint.checks import __register__ as proselint_checks
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check
from proselint.registry.checks.types import PreferredForms
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parent.parent
LONGEST_SENTENCE = 40  # words
# Idioms of a second language, and dated ones -> what to write. Regular expressions; a space is any space.
WORDS = {
    "anew": "again",
    "as ever": "as before",
    "as everywhere": "as usual",
    "belongs? into": "belongs in",
    r"besides[.,;:)]": "also",
    "dear(er)?": "expensive",
    "for good": "permanently",
    "is what nobody": "nobody",
    "li(ve|ves|ved|ving) from": "depends on",
    "mend(s|ed|ing)?": "fix",
    "of late": "recently",
    "of one's own": "your own",
    "with us than without": "with this package than without it",
}
OWN_CHECK = "horovod.words"
# Of proselint's checks, those that suit technical text.
CHECKS = ["archaism", "cliches", "hedging", "lexical_illusions", "malapropisms", "misc", "mixed_metaphors"]
CHECKS += [
    "mondegreens",
    "needless_variants",
    "nonwords",
    "oxymorons",
    "redundancy",
    "spelling",
    "uncomparables",
]

NOT_PROSE = [
    re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE),  # code between fences
    re.compile(r"^ {4}.*$", re.MULTILINE),  # indented code
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"(?<=\])\([^)]*\)"),  # where a link leads
]
CODE = "§"  # for each character of it in a line of text, and for each digit: no check takes it for a word
IN_THE_LINE = re.compile(r"(`+)(?!`).*?\1|\d", re.DOTALL)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[*#|-]|\d+\. )")
SENTENCE = re.compile(r"(?<=[.!?:;])[)*\"\]]*\s+")
WORD = re.compile(rf"[^\W_{CODE}][\w'’.,-]*|{CODE}+")


def english_pages() -> list[Path]:
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.md", ":!docs/zh"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return sorted(ROOT / name for name in set(listed) if (ROOT / name).exists())


def prose_of(text: str) -> str:
    """text with what is not prose made blank, or CODE within a line; the rest stays at its place."""
    for pattern in NOT_PROSE:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return IN_THE_LINE.sub(lambda found: re.sub(r"\S", CODE, found.group()), text)


def long_sentences(text: str, prose: str) -> Iterator[tuple[int, str]]:
    """The line on which each begins, and what is wrong with it."""
    end = 0
    for paragraph in PARAGRAPH.split(prose):
        for sentence in SENTENCE.split(paragraph):
            begin = prose.index(sentence, end)
            end = begin + len(sentence)
            words = len(WORD.findall(sentence))
            if words > LONGEST_SENTENCE and not paragraph.startswith("|"):
                first_words = " ".join(text[begin:end].split()[:6])
                line = prose.count("\n", 0, begin) + 1
                yield line, f"{words} words in a sentence, {LONGEST_SENTENCE} at most: {first_words} ..."


def complaints(name: str, text: str) -> list[str]:
    """One line for each thing that is to be written otherwise, in the order of the text."""
    prose = prose_of(text)
    registry = CheckRegistry()  # one for the process
    if not registry.checks:
        words = {pattern.replace(" ", r"\s+"): instead for pattern, instead in WORDS.items()}
        own = Check(
            check_type=PreferredForms(words), path=OWN_CHECK, message="Write '{}' or the like, not '{}'."
        )
        registry.register_many((*proselint_checks, own))
    config = Config(max_errors=1000, checks=dict.fromkeys([*CHECKS, OWN_CHECK], True))
    found = [(result.pos[0], result.check_result.message) for result in LintFile(name, prose).lint(config)]
    return [f"{name}:{line}: {message}" for line, message in sorted([*found, *long_sentences(text, prose)])]


def main() -> int:
    pages = [Path(name).resolve() for name in sys.argv[1:]] or english_pages()
    found = [line for page in pages for line in complaints(str(page), page.read_text())]
    print("\n".join(found).replace(f"{ROOT}/", "") or f"prose: {len(pages)} pages are in plain English")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
