"""Holds the arrows of docs/architecture.md: who may include or import whom. The table there is the rule."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "horovod" / "native"
ROW = re.compile(r"^\| `horovod/native/(\w+)` \|.*\| (.+?) \|$", re.MULTILINE)
PYTHON_LAYERS = {  # package -> what it may import beside itself and the standard library
    "common": ("numpy", "horovod._native"),
    "torch": (
        *("horovod.common", "horovod._native", "horovod.torch_autoload"),
        *("torch", "numpy", "cloudpickle", "packaging"),
    ),
    "made_hosts": (),
    "topology": ("horovod.common", "horovod._native", "horovod.runner", "psutil"),
    "runner": ("horovod.common.build_info", "yaml", "psutil", "cloudpickle"),
    "lab": (
        *("horovod.runner", "horovod.made_hosts", "rich"),
        *("horovod.torch", "torch"),  # for record.py, inside a training script
        *("horovod.common", "horovod.topology", "numpy"),  # for environment/ and report/, as the next
        *("jinja2", "markupsafe", "matplotlib"),
    ),
}


def native_layers() -> dict[str, set[str]]:
    """Folder -> folders it may include, read from the architecture page's table."""
    layers: dict[str, set[str]] = {}
    for folder, may_use in ROW.findall((ROOT / "docs" / "architecture.md").read_text()):
        above = set(layers)
        named = {name for name in above if re.search(rf"\b{name}\b", may_use)}
        layers[folder] = {folder} | (above if may_use.startswith("all") else named)
    return layers


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


@pytest.mark.parametrize("folder", [path.name for path in sorted(NATIVE.iterdir()) if path.is_dir()])
def test_native_includes_go_down(folder: str) -> None:
    allowed = native_layers()[folder]
    sources = [p for p in (NATIVE / folder).rglob("*") if p.suffix in (".cc", ".h")]
    assert sources
    wrong = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sources
        for name in includes(path)
        if (NATIVE / name).exists() and name.split("/")[0] not in allowed
    ]
    assert not wrong


def test_outside_headers_stay_where_they_belong() -> None:
    home = {"mpi.h": "transport/mpi/", "nanobind/": "bind/", "Python.h": "bind/"}
    for path in (p for p in NATIVE.rglob("*") if p.suffix in (".cc", ".h")):
        for name in includes(path):
            assert not name.startswith(("torch/", "ATen/", "c10/")), f"{path}: the core knows no framework"
            for header, folder in home.items():
                inside = str(path.relative_to(NATIVE)).startswith(folder)
                assert inside or not name.startswith(header), f"{path}: {name} belongs in {folder}"


def imported_modules(path: Path) -> set[str]:
    package = list(path.relative_to(ROOT).parent.parts)
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*parents, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def test_what_import_torch_runs_is_light() -> None:
    tree = ast.parse((ROOT / "horovod" / "torch_autoload.py").read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in imports}
    assert modules <= {"__future__", *sys.stdlib_module_names}, "all else belongs inside its functions"


@pytest.mark.parametrize("package", PYTHON_LAYERS)
def test_python_imports_go_down(package: str) -> None:
    allowed = (f"horovod.{package}", "horovod.__version__", *PYTHON_LAYERS[package], *sys.stdlib_module_names)
    files = sorted((ROOT / "horovod" / package).rglob("*.py"))
    assert files
    for path in files:
        for module in imported_modules(path) - {"horovod"}:
            fine = any(module == name or module.startswith(f"{name}.") for name in allowed)
            assert fine, f"{path.relative_to(ROOT)} may not import {module} (docs/architecture.md)"


def test_the_table_names_every_folder() -> None:
    assert set(native_layers()) == {path.name for path in NATIVE.iterdir() if path.is_dir()}
