"""Writes horovod/_native.pyi: signatures from the built module, by nanobind's stubgen; docstrings stay.

A developer's build in a clone (HOROVOD_DEVELOPER=1) ends with it. The docstrings of bindings are written in
the stub, because editors look there; types that stubgen cannot know are given at the binding, with nb::sig.
--check writes nothing, and exits 1 if the stub differs. It is tracked, so that a fresh clone is type-checked
before any build.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STUB = ROOT / "horovod" / "_native.pyi"
Scope = ast.Module | ast.ClassDef
Docstrings = dict[tuple[str, ...], str]


def generated() -> str:
    """The built module's stub, by stubgen. `import horovod._native` must work."""
    command = [sys.executable, "-m", "nanobind.stubgen", "--quiet", "--exclude-docstrings"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stub.pyi"
        subprocess.run(
            [*command, "--module", "horovod._native", "--output-file", str(file)], cwd=ROOT, check=True
        )
        return file.read_text()


def stub_of(signatures: str, documented: str) -> str:
    """The signatures of one stub with the docstrings of another, formatted by ruff."""
    tree = ast.parse(signatures)
    _simplify(tree)
    texts = _docstrings(ast.parse(documented), ())
    _add_docstrings(tree, (), texts)
    text = ast.unparse(ast.fix_missing_locations(tree))
    for line in filter(_is_string, text.splitlines()):  # an attribute's docstring: for ast just a string
        text = text.replace(
            f"\n{line}\n", f'\n{line[: -len(line.lstrip())]}"""{ast.literal_eval(line.strip())}"""\n'
        )
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


def _is_string(line: str) -> bool:
    return re.fullmatch(r"""\s*(["'])(?!\1).*\1""", line) is not None


def _members(scope: Scope) -> Iterator[tuple[str, ast.stmt, ast.stmt | None]]:
    """Name, definition, and the following statement, which is the docstring of an attribute."""
    for statement, after in zip(scope.body, [*scope.body[1:], None], strict=True):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, statement, None
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement.target.id, statement, after


def _text(statement: ast.stmt | None) -> str:
    """The text of a docstring; "" for anything else."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""


def _docstrings(scope: Scope, path: tuple[str, ...]) -> Docstrings:
    found = {path: _text(scope.body[0])}
    for name, statement, after in _members(scope):
        place = (*path, name)
        if isinstance(statement, ast.ClassDef):
            found |= _docstrings(statement, place)
        else:
            found[place] = _text(statement.body[0] if isinstance(statement, ast.FunctionDef) else after)
    return found


def _add_docstrings(scope: Scope, path: tuple[str, ...], texts: Docstrings) -> None:
    body: list[ast.stmt] = []
    for statement in scope.body:
        body.append(statement)
        if isinstance(statement, ast.ClassDef):
            _add_docstrings(statement, (*path, statement.name), texts)
        elif isinstance(statement, ast.FunctionDef):
            statement.body = _documented(
                [ast.Expr(ast.Constant(...))], texts.get((*path, statement.name), "")
            )
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            text = texts.get((*path, statement.target.id), "")
            body += [ast.Expr(ast.Constant(text))] if text else []
    scope.body = _documented(body or [ast.Expr(ast.Constant(...))], texts.get(path, ""))


def _documented(body: list[ast.stmt], text: str) -> list[ast.stmt]:
    if not text:
        return body
    is_stub = len(body) == 1 and isinstance(body[0], ast.Expr)
    return [ast.Expr(ast.Constant(text)), *([] if is_stub else body)]


def _simplify(scope: Scope) -> None:
    """Make a property with a setter an attribute, and give a constant only its value's type."""
    settable = {s.name for s in scope.body if isinstance(s, ast.FunctionDef) and _decorators(s) & {"setter"}}
    body: list[ast.stmt] = []
    for statement in scope.body:
        if isinstance(statement, ast.ClassDef):
            _simplify(statement)
        elif isinstance(statement, ast.FunctionDef) and statement.name in settable:
            if "setter" in _decorators(statement):
                continue
            assert statement.returns is not None, f"{statement.name} has no type"
            statement = _attribute(statement.name, statement.returns)
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            statement = _attribute(statement.target.id, _exact(statement))
        body.append(statement)
    scope.body = body


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {d.attr for d in function.decorator_list if isinstance(d, ast.Attribute)}


def _attribute(name: str, annotation: ast.expr) -> ast.AnnAssign:
    return ast.AnnAssign(ast.Name(name), annotation, simple=1)


def _exact(constant: ast.AnnAssign) -> ast.expr:
    if not isinstance(constant.value, ast.Tuple):
        return constant.annotation
    items = ", ".join(type(ast.literal_eval(item)).__name__ for item in constant.value.elts)
    return ast.parse(f"tuple[{items}]", mode="eval").body


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the stub would change")
    is_check = parser.parse_args(arguments).check
    before = STUB.read_text()
    after = stub_of(generated(), before)
    if is_check and after != before:
        print(f"{STUB.relative_to(ROOT)} is not of these bindings; type: python scripts/make_stub.py")
        return 1
    if not is_check:
        STUB.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main())
