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
from collections.abc import Sequence
from pathlib import Path

from repository import ROOT

STUB = ROOT / "horovod" / "_native.pyi"
Scope = ast.Module | ast.ClassDef
Names = tuple[str, ...]  # from the module to the definition
Docstrings = dict[Names, str]
ATTRIBUTE_TEXT = re.compile(r"""^( *)((["'])(?!\3).*\3)$""", re.MULTILINE)


def generated() -> str:
    """The built module's stub, by stubgen. `import horovod._native` must work."""
    command = [sys.executable, "-m", "nanobind.stubgen", "--quiet", "--exclude-docstrings"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stub.pyi"
        command += ["--module", "horovod._native", "--output-file", str(file)]
        subprocess.run(command, cwd=ROOT, check=True)
        return file.read_text()


def stub_of(signatures: str, documented: str) -> str:
    """The signatures of one stub with the docstrings of another, formatted by ruff."""
    tree = ast.parse(signatures)
    tree.body = _finished(tree, (), _docstrings(ast.parse(documented), ()))
    text = ast.unparse(ast.fix_missing_locations(tree))
    # For ast, the docstring of an attribute is just a string.
    text = ATTRIBUTE_TEXT.sub(lambda line: f'{line[1]}"""{ast.literal_eval(line[2])}"""', text)
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=True).stdout


def _text(statement: ast.stmt | None) -> str:
    """The text of a docstring; "" for anything else."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return statement.value.value if isinstance(statement.value.value, str) else ""
    return ""


def _docstrings(scope: Scope, path: Names) -> Docstrings:
    """By path of names; the statement after an attribute is its docstring."""
    found = {path: _text(scope.body[0])}
    for statement, after in zip(scope.body, [*scope.body[1:], None], strict=True):
        match statement:
            case ast.ClassDef(name=name):
                found |= _docstrings(statement, (*path, name))
            case ast.FunctionDef(name=name):
                found |= {(*path, name): _text(statement.body[0])}
            case ast.AnnAssign(target=ast.Name(id=name)):
                found |= {(*path, name): _text(after)}
    return found


def _finished(scope: Scope, path: Names, texts: Docstrings) -> list[ast.stmt]:
    """The statements with docstrings, a property with a setter as an attribute, a constant as its type."""
    settable = {s.name for s in scope.body if isinstance(s, ast.FunctionDef) and "setter" in _decorators(s)}
    body: list[ast.stmt] = []
    for statement in scope.body:
        match statement:
            case ast.ClassDef(name=name):
                statement.body = _finished(statement, (*path, name), texts)
            case ast.FunctionDef(name=name) if "setter" in _decorators(statement):
                continue
            case ast.FunctionDef(name=name) if name in settable:
                assert statement.returns is not None, f"{name} has no type"
                statement = ast.AnnAssign(ast.Name(name), statement.returns, simple=1)
            case ast.FunctionDef(name=name):
                statement.body = _documented([ast.Expr(ast.Constant(...))], texts.get((*path, name), ""))
            case ast.AnnAssign(target=ast.Name(id=name)):
                statement = ast.AnnAssign(ast.Name(name), _exact(statement), simple=1)
        body.append(statement)
        if isinstance(statement, ast.AnnAssign) and (text := texts.get((*path, name))):
            body.append(ast.Expr(ast.Constant(text)))
    return _documented(body or [ast.Expr(ast.Constant(...))], texts.get(path, ""))


def _documented(body: list[ast.stmt], text: str) -> list[ast.stmt]:
    if not text:
        return body
    is_stub = len(body) == 1 and isinstance(body[0], ast.Expr)
    return [ast.Expr(ast.Constant(text)), *([] if is_stub else body)]


def _decorators(function: ast.FunctionDef) -> set[str]:
    return {d.attr for d in function.decorator_list if isinstance(d, ast.Attribute)}


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
