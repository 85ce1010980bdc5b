"""Single changes of a source file: cosmic-ray's operators for Python, regular expressions for C++.

A C++ mutation swaps an operator or a word that cannot belong to a template, include or literal; if a mutant
does not compile, the caller skips it. Changes that no test can see are excluded: annotations, and code for
the type checker only.
"""

from __future__ import annotations

import ast
import random
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Mutation:
    """A mutation. `name`: the operator's; `occurrence`: which of its places in the file; `line`: from 1."""

    path: str
    line: int
    name: str
    occurrence: int

    def as_record(self) -> dict[str, Any]:
        return asdict(self)


# Patterns in C++ code, and the replacements of each match.
_CPP = {
    r"(?<=[\w\])] )<(?= [\w(-])": ("<=", ">="),
    r"(?<=[\w\])] )>(?= [\w(-])": (">=", "<="),
    r"(?<=[\w\])] )<=(?= )": ("<", ">"),
    r"(?<=[\w\])] )>=(?= )": (">", "<"),
    r"(?<= )==(?= )": ("!=",),
    r"(?<= )!=(?= )": ("==",),
    r"(?<= )&&(?= )": ("||",),
    r"(?<= )\|\|(?= )": ("&&",),
    r"(?<=[\w\])] )\+(?= [\w(])": ("-",),
    r"(?<=[\w\])] )-(?= [\w(])": ("+",),
    r"(?<=[\w\])] )\*(?= [\w(])": ("/",),
    r"(?<=[\w\])] )/(?= [\w(])": ("*",),
    r"(?<=[\w\])] )%(?= [\w(])": ("*",),
    r"(?<= )\+=(?= )": ("-=", "="),
    r"(?<= )-=(?= )": ("+=",),
    r"\btrue\b": ("false",),
    r"\bfalse\b": ("true",),
    r"(?<=[(&|] )!(?=[\w(])|(?<=\()!(?=[\w(])": ("",),
    r"\bcontinue;": ("break;",),
    r"\bbreak;": (";",),
    r"(?<=[(,=+*/ -])1(?=[;,) ])": ("0", "2"),
    r"(?<=[(,=+*/ -])0(?=[;,) ])": ("1",),
    r"\bstd::min\b": ("std::max",),
    r"\bstd::max\b": ("std::min",),
}
_UNSEEN_CPP = re.compile(
    r"//.*|^\s*#.*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'|template\s*<[^>]*>", re.MULTILINE
)


def _blanked(source: str) -> str:
    """Return the source with spaces in place of anything but code, so that positions stay the same."""
    return _UNSEEN_CPP.sub(lambda found: " " * len(found[0]), source)


def _cpp_places(source: str) -> Iterator[tuple[str, int, int, int, str]]:
    """Yield (name, occurrence, begin, end, replacement)."""
    blanked = _blanked(source)
    for pattern, others in _CPP.items():
        finds = list(re.finditer(pattern, blanked))
        for other in others:
            for number, found in enumerate(finds):
                yield f"{pattern} -> {other}", number, found.start(), found.end(), other


def _cpp_mutations(path: str, source: str) -> list[Mutation]:
    starts = [0, *(found.end() for found in re.finditer("\n", source))]
    return [
        Mutation(path, bisect_right(starts, begin), name, number)
        for name, number, begin, _, _ in _cpp_places(source)
    ]


def _python_mutations(path: str, source: str) -> list[Mutation]:
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator, operator_names

    tree = get_ast(source)
    unseen = _unseen_lines(tree)
    annotations = _annotations(tree)
    nodes = list(ast_nodes(tree))
    found = []
    for name in sorted(operator_names()):
        if "Variable" in name or name == "core/RemoveDecorator":
            continue  # they need arguments; or most of their mutants do not import
        operator, number = get_operator(name)(), 0
        for node in nodes:
            for begin, end in operator.mutation_positions(node):
                inside = any(low <= begin and end <= high for low, high in annotations)
                if begin[0] not in unseen and not inside:
                    found.append(Mutation(path, begin[0], name, number))
                number += 1
    return found


def _unseen_lines(tree: Any) -> set[int]:
    """Return the lines of `if TYPE_CHECKING:`."""
    from cosmic_ray.ast import ast_nodes

    lines: set[int] = set()
    for node in ast_nodes(tree):
        if node.type == "if_stmt" and "TYPE_CHECKING" in node.children[1].get_code():
            lines.update(range(node.start_pos[0], node.end_pos[0] + 1))
    return lines


def _annotations(tree: Any) -> list[tuple[Any, Any]]:
    """Return the positions of type annotations, which nothing evaluates."""
    from cosmic_ray.ast import ast_nodes

    places = []
    for node in ast_nodes(tree):
        if (node.type == "funcdef" and node.annotation is not None) or (
            node.type == "param" and node.annotation is not None
        ):
            places.append((node.annotation.start_pos, node.annotation.end_pos))
        elif node.type == "annassign":
            places.append((node.children[1].start_pos, node.children[1].end_pos))
    return places


def lines_of_statement(path: str, source: str, line: int) -> range:
    """Return the lines of a line's statement, or of its head: coverage counts only some of them."""
    lines = source.splitlines()
    if path.endswith(".py"):
        return _lines_of_python(ast.parse(source), line)
    first = last = line
    while first > 1 and not _ENDS_CPP.search(lines[first - 2]):
        first -= 1
    while last < len(lines) and not _ENDS_CPP.search(lines[last - 1]):
        last += 1
    return range(first, last + 1)


_ENDS_CPP = re.compile(r"([;{}:>]|^\s*|^\s*#.*)\s*(//.*)?$")


def _lines_of_python(tree: ast.AST, line: int) -> range:
    found = range(line, line + 1)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        end = body[0].lineno if body else (node.end_lineno or node.lineno) + 1
        if node.lineno <= line < end and end - node.lineno >= len(found):
            found = range(node.lineno, end)
    return found


def is_valid(mutation: Mutation, changed: str) -> bool:
    """Return whether Python can parse it; for C++ the compiler decides."""
    try:
        if mutation.path.endswith(".py"):
            compile(changed, mutation.path, "exec")
    except (SyntaxError, ValueError):
        return False
    return True


def mutations_of(path: str, source: str) -> list[Mutation]:
    return (_python_mutations if path.endswith(".py") else _cpp_mutations)(path, source)


def mutated(mutation: Mutation, source: str) -> str:
    if mutation.path.endswith(".py"):
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        changed = mutate_code(source, get_operator(mutation.name)(), mutation.occurrence)
        assert isinstance(changed, str), mutation
        return changed
    for name, number, begin, end, other in _cpp_places(source):
        if (name, number) == (mutation.name, mutation.occurrence):
            return source[:begin] + other + source[end:]
    raise ValueError(f"{mutation.path} has no such place: {mutation}")


def drawn(sources: dict[str, str], seed: int) -> Iterator[Mutation]:
    """Yield mutations in a random order, one for each line: all lines have equal weight."""
    by_line: dict[tuple[str, int], list[Mutation]] = {}
    for path in sorted(sources):
        for mutation in mutations_of(path, sources[path]):
            by_line.setdefault((path, mutation.line), []).append(mutation)
    chance = random.Random(seed)
    order = sorted(by_line)
    chance.shuffle(order)
    for place in order:
        yield chance.choice(by_line[place])
