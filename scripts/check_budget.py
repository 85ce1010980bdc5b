"""Checks the size budget. Medians do not distinguish good code from bad; the largest values do.

Prints values over the limit and exits 1; --list prints the N largest of each kind instead. Docstrings do not
count as lines of a function. Raising a limit is a decision about the whole code base; EXCEPTIONS is for
single cases, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import cpp_functions

ROOT = Path(__file__).resolve().parent.parent
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
    (
        "horovod/torch/optimizer.py",
        "DistributedOptimizer",
        "parameters of a function",
    ): "Horovod's public signature",
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


def source_files() -> list[Path]:
    """Files of the repository that git tracks, or could track."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "*.py", "*.cc", "*.h", "*.cu", "*.cuh"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return sorted(ROOT / name for name in set(listed) if (ROOT / name).exists())


def measure_file(path: Path) -> Iterator[Measurement]:
    name = str(path.relative_to(ROOT))
    source = path.read_text()
    lines = source.count("\n")
    if path.suffix == ".py":
        kind = "lines of a test file" if name.startswith("test/") else "lines of a Python file"
        yield Measurement(lines, kind, name)
        yield from _measure_python(ast.parse(source, filename=name), name)
        return
    is_interface = path.suffix == ".h" and "HVD_SCALAR" not in source  # else inline formats and loops
    yield Measurement(lines, "lines of a header" if is_interface else "lines of a C++ file", name)
    for function in cpp_functions.functions(source):
        where = (name, function.name, function.line)
        yield Measurement(function.lines, "lines of a function", *where)
        yield Measurement(function.branches, "branches of a function", *where)
        yield Measurement(function.parameters, "parameters of a function", *where)


def _measure_python(tree: ast.Module, name: str) -> Iterator[Measurement]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            where = (name, node.name, node.lineno)
            end = node.end_lineno or node.lineno
            yield Measurement(end - node.lineno + 1 - _docstring_lines(node), "lines of a function", *where)
            yield Measurement(1 + sum(map(_decisions, _own_nodes(node))), "branches of a function", *where)
            yield Measurement(_parameters(node.args), "parameters of a function", *where)


def _docstring_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is None or first.end_lineno is None:
        return 0
    return first.end_lineno - first.lineno + 1


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    """Nodes of a function, without nodes of functions defined in it, which are measured separately."""
    for child in ast.iter_child_nodes(function):
        yield child
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _own_nodes(child)


def _decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(
        isinstance(
            node,
            ast.If | ast.IfExp | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.match_case,
        )
    )


def _parameters(arguments: ast.arguments) -> int:
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    starred = [extra for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
    return len([a for a in named if a.arg not in ("self", "cls")]) + len(starred)


def show_largest(measurements: list[Measurement], count: int) -> None:
    for what, limit in LIMITS.items():
        print(f"{what} (at most {limit})")
        for m in sorted((m for m in measurements if m.what == what), reverse=True)[:count]:
            print(f"  {m.value:5} {m.file}:{m.line} {m.function}")


def complaints(measurements: list[Measurement]) -> list[str]:
    """One line for each measurement over its limit, and for each unused exception."""
    over = [m for m in measurements if m.value > LIMITS[m.what]]
    lines = [
        f"{m.file}:{m.line}: {m.function or 'the file'} has {m.value} {m.what}, allowed {LIMITS[m.what]}"
        for m in over
        if m.key() not in EXCEPTIONS
    ]
    for file, function, what in sorted(EXCEPTIONS.keys() - {m.key() for m in over}):
        lines.append(
            f"{file}: the exception for {function or 'the file'} ({what}) is not needed; take it out"
        )
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", type=int, default=0, metavar="N", help="show the N largest of each kind")
    largest = parser.parse_args().list
    measurements = [m for path in source_files() for m in measure_file(path)]
    if largest:
        show_largest(measurements, largest)
        return 0
    found = complaints(measurements)
    holding = f"budget: {len(measurements)} measurements hold, {len(EXCEPTIONS)} exceptions by name"
    print("\n".join(found) or holding)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
