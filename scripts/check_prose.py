"""Checks that pages, comments and docstrings are in plain English.

Usage: check_prose.py [PAGE...] or check_prose.py --counts [FILE...]

Without names it reads all English pages that git knows, and all sources. It prints its findings and exits 1;
with --counts it prints only the counts. A page must pass proselint, with the project's word list, and have no
sentence that is too long. Code and the targets of links are not prose; tables are not made of sentences.
PATTERNS limits phrases that are hard to read, but too frequent to forbid.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import repository
from proselint.checks import __register__ as proselint_checks
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check
from proselint.registry.checks.types import PreferredForms
from proselint.tools import LintFile

NOT_ENGLISH = ":!docs/zh"
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
# Phrases -> the number left, which may only fall, and what to write instead.
PATTERNS = {
    r"(?m)^\W*(?:What|Who|Whose|Whom|Where)\b(?![^.\n]*\?)":
        (48, "the noun as the subject: 'The reason why', 'Ranks that'"),
    r"\bwhere\b": (121, "'if' for a condition, 'when' for a time, 'in which' for a place"),
    r"\b(?:nobody|no ?one|(?:is|are) no)\b": (77, "'no rank', 'no caller', or another verb"),
    r"\bthose (?:that|of|who|which)\b": (88, "the noun again"),
    r"\b(?:is|are|was|were) told\b|\bhears? (?:of|about)\b|\bheard of\b":
        (7, "who sends and who receives it"),
    r"\bof (?:its|their|his|one's) own\b": (23, "'its own', or nothing"),
}  # fmt: skip
# Of proselint's checks, those that suit technical text.
CHECKS = (
    "archaism", "cliches", "hedging", "lexical_illusions", "malapropisms", "misc", "mixed_metaphors",
    "mondegreens", "needless_variants", "nonwords", "oxymorons", "redundancy", "spelling", "uncomparables",
)  # fmt: skip
NOT_PROSE = [
    re.compile(r"^( *)```.*?^\1```$", re.DOTALL | re.MULTILINE),  # code between fences
    re.compile(r"^ {4}.*$", re.MULTILINE),  # indented code
    re.compile(r"<!--.*?-->", re.DOTALL),
    re.compile(r"(?<=\])\([^)]*\)"),  # the target of a link
]
CODE = "§"  # replaces code within a line, and digits, so that no check takes it for a word
IN_THE_LINE = re.compile(r"(`+)(?!`).*?\1|\d", re.DOTALL)
PARAGRAPH = re.compile(r"\n\s*\n|\n(?=[*#|-]|\d+\. )")
SENTENCE = re.compile(r"(?<=[.!?:;])[)*\"\]]*\s+")
WORD = re.compile(rf"[^\W_{CODE}][\w'’.,-]*|{CODE}+")


def comments_of(path: Path) -> str:
    """The docstrings and comments of a Python file, or the comments of a C++ file; all of a page."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix != ".py":
        return "\n".join(re.findall(r"(?<!:)//+ *([^\n]*)", text))
    scopes = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, scopes))
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    return "\n".join(docstrings + re.findall(r"(?:^|\s)#:? +([^\n]*)", text))


def occurrences(files: list[Path]) -> dict[str, int]:
    """How often each of PATTERNS occurs in pages and sources; in all, if none is named."""
    files = files or repository.files("*.md", "*.py", "*.h", "*.cc", "*.cu", "*.cuh", NOT_ENGLISH)
    text = "\n".join(prose_of(comments_of(path)) for path in files)
    return {pattern: len(re.findall(pattern, text)) for pattern in PATTERNS}


def worse() -> Iterator[str]:
    """One line for each of PATTERNS that occurs more often than allowed."""
    for pattern, count in occurrences([]).items():
        most, instead = PATTERNS[pattern]
        if count > most:
            yield f"{count} of {pattern!r} in pages and sources, {most} before: write {instead}"


def prose_of(text: str) -> str:
    """text with everything but prose made blank, or CODE within a line; positions stay the same."""
    for pattern in NOT_PROSE:
        text = pattern.sub(lambda found: re.sub(r"[^\n]", " ", found.group()), text)
    return IN_THE_LINE.sub(lambda found: re.sub(r"\S", CODE, found.group()), text)


def long_sentences(text: str, prose: str) -> Iterator[tuple[int, str]]:
    """The line on which each begins, and the complaint."""
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
    """One line for each complaint, in the order of the text."""
    prose = prose_of(text)
    registry = CheckRegistry()  # one for the process
    if not registry.checks:
        words = {pattern.replace(" ", r"\s+"): instead for pattern, instead in WORDS.items()}
        message = "Write '{}' or the like, not '{}'."
        own = Check(check_type=PreferredForms(words), path=OWN_CHECK, message=message)
        registry.register_many((*proselint_checks, own))
    config = Config(max_errors=1000, checks=dict.fromkeys((*CHECKS, OWN_CHECK), True))
    found = [(result.pos[0], result.check_result.message) for result in LintFile(name, prose).lint(config)]
    return [f"{name}:{line}: {message}" for line, message in sorted([*found, *long_sentences(text, prose)])]


def main() -> int:
    if sys.argv[1:2] == ["--counts"]:
        for pattern, count in occurrences([Path(name) for name in sys.argv[2:]]).items():
            print(f"{count:5} {pattern}")
        return 0
    named = [Path(name).resolve() for name in sys.argv[1:]]
    pages = named or repository.files("*.md", NOT_ENGLISH)
    found = [line for page in pages for line in complaints(str(page), page.read_text())]
    if not named:
        found += worse()
    shown = "\n".join(found).replace(f"{repository.ROOT}/", "")
    print(shown or f"prose: {len(pages)} pages are in plain English")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
