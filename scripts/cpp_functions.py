"""Finds the functions of a C++ file: name, lines, parameters, branches. A brace parser, not a compiler.

It knows the forms that this repository uses: free functions, methods, constructors with initialiser lists,
templates. Lambdas belong to the function around them. Preprocessor lines, comments and literals are blanked.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Function:
    """A function body. `branches` is McCabe's number: 1 + decisions."""

    name: str
    line: int
    lines: int
    parameters: int
    branches: int


NOISE = re.compile(
    r"//[^\n]*|/\*.*?\*/"  # comments
    r'|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''  # literals
    r"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*",  # preprocessor lines, continued ones too
    re.DOTALL | re.MULTILINE,
)
DECISION = re.compile(r"\b(?:if|for|while|case|catch)\b|\s&&\s|\|\||\?")
TYPE = re.compile(r"^(?:template\s*<.*>\s*)?(?:class|struct|union|enum)\b", re.DOTALL)
NAME = re.compile(r"(operator\s*(?:\(\)|[^\s(]+)|~?[A-Za-z_][\w:~]*)\s*\(")


def blanked(source: str) -> str:
    """The source with noise replaced by spaces; lines keep their places. Keeps digit separators."""
    source = re.sub(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])", "_", source)
    return NOISE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)


def functions(source: str) -> list[Function]:
    """All function definitions at namespace and class scope, in order."""
    text = blanked(source)
    found: list[Function] = []
    head_start = position = 0
    while position < len(text):
        character = text[position]
        if character == "(":
            position = _matching(text, position)  # default arguments may contain braces
        elif character in ";}":
            head_start = position + 1
        elif character == "{":
            head = text[head_start:position]
            kind = _kind(head)
            if kind == "scope":
                head_start = position + 1
            else:
                end = _matching(text, position)
                if kind == "function":
                    found.append(_function(text, head_start, position, end))
                    head_start = end + 1
                position = end
        position += 1
    return found


def _kind(head: str) -> str:
    """The kind of an opening brace after `head`: "scope" (namespace, type), "function" or "initialiser"."""
    stripped = re.sub(r"^(?:\s*(?:public|private|protected)\s*:)+", "", head).strip()
    if re.match(r"(?:inline\s+)?namespace\b|extern\b\s*$", stripped):
        return "scope"
    if TYPE.match(stripped) and not re.search(r"\)\s*(?:const|noexcept)?$", stripped):
        return "initialiser" if stripped.startswith("enum") else "scope"
    if "(" not in stripped or stripped.endswith(("=", ",")):
        return "initialiser"
    member_of_initialiser_list = re.search(r"\)[^():]*:(?!:)", stripped) and re.search(r"[\w>]$", stripped)
    return "initialiser" if member_of_initialiser_list else "function"


def _matching(text: str, opening: int) -> int:
    """Index of the bracket that closes the one at `opening`; the text's end if it never closes."""
    close = {"{": "}", "(": ")"}[text[opening]]
    depth = 0
    for index in range(opening, len(text)):
        if text[index] == text[opening]:
            depth += 1
        elif text[index] == close:
            depth -= 1
            if depth == 0:
                return index
    return len(text)


def _function(text: str, head_start: int, opening: int, end: int) -> Function:
    while text[head_start].isspace():
        head_start += 1
    head = text[head_start:opening]
    match = NAME.search(head)
    name = match[1] if match else head.split("(")[0].strip()
    start = head_start + (match.end() - 1 if match else head.index("("))
    first = text.count("\n", 0, head_start) + 1
    return Function(
        name=name,
        line=first,
        lines=text.count("\n", 0, end) + 2 - first,
        parameters=_count_parameters(text[start + 1 : _matching(text, start)]),
        branches=1 + len(DECISION.findall(text[opening:end])),
    )


def _count_parameters(inside: str) -> int:
    """Commas outside any bracket, plus one; 0 for an empty list and for `void`."""
    if inside.strip() in ("", "void"):
        return 0
    depth = commas = 0
    for character in inside:
        depth += (character in "(<[{") - (character in ")>]}")
        commas += character == "," and depth == 0
    return commas + 1
