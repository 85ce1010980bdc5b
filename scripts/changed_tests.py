"""`make test CHANGED=1`: the tests of the concepts whose files have changed, as arguments for pytest.

Changed files differ from the point at which this branch left origin/main; without an origin/main, from the
last commit's parent. Another base: `make test CHANGED=REF`. The rule, for each changed file:

* in a folder of the package: the folder of that name in test/single (`ELSEWHERE` has exceptions), and the
  folders of files that directly import it, or include it or the header of its name;
* a test: itself; another file in a folder of test/single, except support: that folder;
* in benchmarks, examples and scripts: their tests; a page: the house tests, and its own;
* any other (of the build, Makefile, conftest.py, files that several tests share): all, printed as `all`.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from repository import ROOT, changed, git

ALL = "all"
HOUSE = "test/single/house"
STUB = f"{HOUSE}/test_make_stub.py"
# A folder of the package without tests under its name -> its tests. MPI connects processes, not threads.
ELSEWHERE = {
    "horovod/native/bind": (STUB, f"{HOUSE}/test_layers.py"),
    # its other bindings change with these tests
    "horovod/native/bind/testing": ("test/single/schedule", "test/single/transport"),
    "horovod/native/transport/mpi": ("test/parallel/test_launch.py",),
    "horovod/common/numpy_codec": ("test/single/codec",),
}
OTHERS = {"scripts": HOUSE} | {name: f"test/single/{name}" for name in ("benchmarks", "examples")}
TEST = re.compile(r"test/(single(/\w+)+|\w+)/test_\w+\.py")
INCLUDE = re.compile(r'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def changed_files(base: str) -> list[str]:
    """Changed files, including deleted and untracked ones."""
    if base == "1":
        base = next(iter(git("merge-base", "HEAD", "origin/main", root=ROOT)), "HEAD~1")
    if not git("rev-parse", "--verify", f"{base}^{{commit}}", root=ROOT):
        sys.exit(f"CHANGED={base}: git knows no such commit; 1 means since origin/main")
    return changed(base, root=ROOT)


def selected_by(files: Iterable[str]) -> list[str]:
    chosen = set[str]().union(*map(_of_one, files))
    inner = {each for each in chosen if any(each.startswith(f"{other}/") for other in chosen)}
    return [ALL] if ALL in chosen else sorted(chosen - inner)


def of_folder(folder: str) -> set[str]:
    if folder in ELSEWHERE:
        return set(ELSEWHERE[folder])
    name = re.sub(r"^horovod/(native/)?", "", folder)
    return {f"test/single/{name}"} if (ROOT / "test" / "single" / name).is_dir() else {ALL}


def _of_one(file: str) -> set[str]:
    path = Path(file)
    if path.name == "conftest.py":
        return {ALL}
    if TEST.fullmatch(file):
        return {file} if (ROOT / file).exists() else set()
    top, folder = path.parts[0], str(path.parent)
    if file.startswith("test/single/") and folder not in ("test/single", "test/single/support"):
        return {folder}
    if path.suffix == ".md":
        pages = ROOT.glob(f"test/*/test_{path.stem.lower()}_page.py")
        return {HOUSE, *(str(page.relative_to(ROOT)) for page in pages)}
    if top == "horovod" and len(path.parts) > 2:
        return of_folder(folder).union(*(of_folder(other) for other in users_of(file)))
    return {STUB} if file == "horovod/_native.pyi" else {OTHERS.get(top, ALL)}


def users_of(file: str) -> set[str]:
    """Folders of the package with a file that imports this file or includes its header."""
    path = Path(file)
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__")}
    if str(path.parent) == "horovod/native/bind":
        names = {"horovod._native"}
    elif file.startswith("horovod/native/"):
        names = {file[len("horovod/native/") :], str(path.with_suffix(".h"))[len("horovod/native/") :]}
    return {folder for used, folder in _uses() if used in names and folder != "horovod"}


@cache
def _uses() -> set[tuple[str, str]]:
    """(header or module, folder of a file that uses it)"""
    found: set[tuple[str, str]] = set()
    for path in (ROOT / "horovod").rglob("*"):
        if path.suffix in (".cc", ".h", ".cu", ".cuh", ".py"):
            taken = _imports(path) if path.suffix == ".py" else INCLUDE.findall(path.read_text())
            found |= {(name, str(path.parent.relative_to(ROOT))) for name in taken}
    return found


def _imports(path: Path) -> set[str]:
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parents, *filter(None, [node.module])])
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


if __name__ == "__main__":
    print(*selected_by(changed_files(sys.argv[1] if len(sys.argv) > 1 else "1")))
