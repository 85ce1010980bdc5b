"""A digest of all inputs of a run besides its options: runs with different digests are not the same."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path

import horovod
from horovod.common.build_info import native_package
from horovod.common.options import OPTIONS

PACKAGE = Path(horovod.__file__).parent
NOT_OF_A_RUN = (PACKAGE / "lab" / "report", PACKAGE / "lab" / "environment", PACKAGE / "topology")


def digest(script: str) -> str:
    """The digest of a run's inputs.

    They are the script and the modules beside it that it imports, this package, PyTorch, Python, the
    machine's name, and the variables that this package reads.
    """
    found = hashlib.sha256()
    for path in sorted(sources(Path(script))):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    found.update(_environment().encode())
    for name in sorted({option.variable for option in OPTIONS if option.variable} & set(os.environ)):
        if name != "HOROVOD_COMPRESSION":  # set for each run
            found.update(f"{name}={os.environ[name]}\0".encode())
    return found.hexdigest()[:16]


def sources(script: Path) -> set[Path]:
    """The script and the modules in its folder that it imports, directly or indirectly."""
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imported(path):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                path = script.parent.joinpath(*parts[:end])
                waiting += [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found


def _imported(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # its run will report it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _environment() -> str:
    """This package's files, which may be under development, and the software below it."""
    found = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *native_package().glob("*.so")]):
        if not any(path.is_relative_to(folder) for folder in NOT_OF_A_RUN):
            name = path.relative_to(PACKAGE) if path.suffix == ".py" else path.name
            found.update(str(name).encode() + path.read_bytes())
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "none"
    return f"{found.hexdigest()} {torch} {platform.python_version()} {platform.node()}"
