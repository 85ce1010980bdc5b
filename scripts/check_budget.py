"""Checks the size budget. Medians do not distinguish good code from bad; the largest values do.

Prints values over the limit and exits 1; --list prints the N largest of each kind instead. lizard measures
functions: branches are McCabe's number, 1 + decisions. Docstrings do not count as lines of a function.
Raising a limit is a decision about the whole code base; EXCEPTIONS is for single cases, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import lizard
import repository
from repository import ROOT

LIMITS = {
    "lines of a C++ file": 800,
    "lines of a header": 120,
    "lines of a Python file": 500,
    "lines of a test file": 800,
    "lines of a function": 60,
    "branches of a function": 15,
    "parameters of a function": 8,
}
PUBLIC_SIGNATURE = "Horovod's public signature"
# (file, function or "", what) -> reason. An entry that is no longer needed is an error.
EXCEPTIONS: dict[tuple[str, str, str], str] = {
    ("horovod/runner/run_function.py", "run", "parameters of a function"): PUBLIC_SIGNATURE,
    ("horovod/torch/optimizer.py", "DistributedOptimizer", "parameters of a function"): PUBLIC_SIGNATURE,
    ("horovod/native/base/sentences.h", "", "lines of a header"): "one table: all sentences of the core",
}


@dataclass(frozen=True, order=True)
class Measurement:
    value: int
    what: str
    file: str
    function: str = ""
    line: int = 1

    def key(self) -> tuple[str, str, str]:
        return (self.file, self.function, self.what)


def measure_file(path: Path) -> Iterator[Measurement]:
    name, source = str(path.relative_to(ROOT)), path.read_text()
    kind, docstrings = "lines of a C++ file", dict[int, int]()
    if path.suffix == ".py":
        kind = "lines of a test file" if name.startswith("test/") else "lines of a Python file"
        docstrings = _lines_of_docstrings(source)
    elif path.suffix == ".h" and "HVD_SCALAR" not in source:  # an interface; else inline formats and loops
        kind = "lines of a header"
    yield Measurement(source.count("\n"), kind, name)
    for function in lizard.analyze_file.analyze_source_code(str(path), source).function_list:
        where = (name, function.name, function.start_line)
        lines = function.length - docstrings.get(function.start_line, 0)
        parameters = [each for each in function.parameters if each not in ("self", "cls")]
        yield Measurement(lines, "lines of a function", *where)
        yield Measurement(function.cyclomatic_complexity, "branches of a function", *where)
        yield Measurement(len(parameters), "parameters of a function", *where)


def _lines_of_docstrings(source: str) -> dict[int, int]:
    """By the first line of a function; those of the functions in it are its own lines."""
    nodes = ast.walk(ast.parse(source))
    functions = (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    firsts = {node.lineno: node.body[0] for node in functions if ast.get_docstring(node) is not None}
    return {line: (first.end_lineno or first.lineno) - first.lineno + 1 for line, first in firsts.items()}


def show_largest(measurements: list[Measurement], count: int) -> None:
    for what, limit in LIMITS.items():
        print(f"{what} (at most {limit})")
        for m in sorted((m for m in measurements if m.what == what), reverse=True)[:count]:
            print(f"  {m.value:5} {m.file}:{m.line} {m.function}")


def complaints(measurements: list[Measurement]) -> list[str]:
    """One line for each measurement over its limit, and for each unused exception."""
    over = {m.key(): m for m in measurements if m.value > LIMITS[m.what]}
    lines = [
        f"{m.file}:{m.line}: {m.function or 'the file'} has {m.value} {m.what}, allowed {LIMITS[m.what]}"
        for key, m in over.items()
        if key not in EXCEPTIONS
    ]
    for file, function, what in sorted(EXCEPTIONS.keys() - over.keys()):
        where = function or "the file"
        lines.append(f"{file}: the exception for {where} ({what}) is not needed; take it out")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", type=int, default=0, metavar="N", help="show the N largest of each kind")
    largest = parser.parse_args().list
    files = repository.files("*.py", "*.cc", "*.h", "*.cu", "*.cuh")
    measurements = [m for path in files for m in measure_file(path)]
    if largest:
        show_largest(measurements, largest)
        return 0
    found = complaints(measurements)
    holding = f"budget: {len(measurements)} measurements hold, {len(EXCEPTIONS)} exceptions by name"
    print("\n".join(found) or holding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
