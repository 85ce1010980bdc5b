"""Checks includes and imports against the arrows in docs/architecture.md. The table there is the rule."""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
NATIVE = ROOT / "horovod" / "native"
SUFFIXES = (".cc", ".h", ".cu", ".cuh")
ROW = re.compile(r"^\| `horovod/native/(\w+)` \|.*\| (.+?) \|$", re.MULTILINE)
# These need only the standard library.
FOR_ALL = ("horovod.__version__", "horovod.common.exceptions", "horovod.common.sentences")
PYTHON_LAYERS = {  # package -> what it may import beside itself and the standard library
    "common": "numpy psutil horovod._native",
    # lightning: for lightning.py, which nothing else imports
    "torch": "horovod.common horovod._native horovod.gloo_threads horovod.torch_autoload horovod.tune "
    "torch numpy cloudpickle packaging lightning",
    "made_hosts": "",
    "tune": "",
    "drawing": "",
    "topology": "horovod.common horovod.drawing horovod.runner horovod._native psutil pynvml",
    # torch: for a warm server alone, as LIGHT says; ranks are forked from it
    "runner": "horovod.common horovod.tune yaml psutil cloudpickle shtab horovod.torch torch",
    # torch: for record.py, inside a training script; the last for environment/ and report/
    "lab": "horovod.runner horovod.made_hosts rich horovod.torch torch "
    "horovod.common horovod.drawing horovod.topology numpy jinja2 markupsafe matplotlib",
}
# May only shrink: remove a circle once it is fixed.
KNOWN_CIRCLES = [{"horovod.torch.gradient_listener", "horovod.torch.shared_parameters"}]
HEAVY = ("torch", "numpy", "horovod.torch", "horovod._native")
LIGHT: dict[str, set[str]] = {  # module -> its submodules that may load heavy modules
    "horovod.runner": {"horovod.runner.agents.warm_server"},
    # what `import torch` runs, in every process
    "horovod.torch_autoload": set(),
    "horovod.gloo_threads": set(),
    "horovod.common.compressors": set(),
}


def native_layers() -> dict[str, set[str]]:
    """Folder -> folders it may include, read from the architecture page's table."""
    layers: dict[str, set[str]] = {}
    for folder, may_use in ROW.findall((ROOT / "docs" / "architecture.md").read_text()):
        above = set(layers)
        named = {name for name in above if re.search(rf"\b{name}\b", may_use)}
        layers[folder] = {folder} | (above if may_use.startswith("all") else named)
    return layers


def native_files(native: Path = NATIVE) -> list[Path]:
    return sorted(path for path in native.rglob("*") if path.suffix in SUFFIXES)


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def wrong_includes(native: Path) -> list[str]:
    """Includes that go against the arrows, each as "file: include"."""
    layers = native_layers()
    return [
        f"{path.relative_to(native)}: {name}"
        for path in native_files(native)
        for name in includes(path)
        if (native / name).exists() and name.split("/")[0] not in layers[path.relative_to(native).parts[0]]
    ]


def test_native_includes_go_down() -> None:
    assert not wrong_includes(NATIVE)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_an_include_against_the_arrows_is_found(tmp_path: Path, suffix: str) -> None:
    for name, text in ((f"codec/low{suffix}", '#include "device/high.h"\n'), ("device/high.h", "")):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    assert wrong_includes(tmp_path) == [f"codec/low{suffix}: device/high.h"]


def test_every_native_file_is_read_and_built() -> None:
    """According to these rules, and to CMake's lists."""
    files = set(native_files())
    assert {path for path in NATIVE.rglob("*") if path.is_file()} == files
    globs = re.findall(r"\$\{native\}/(\S+\*\.\w+)", (ROOT / "CMakeLists.txt").read_text())
    compiled = {path for pattern in globs for path in NATIVE.glob(pattern) if path.suffix in (".cc", ".cu")}
    assert compiled == {path for path in files if path.suffix in (".cc", ".cu")}


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make; apt-get install make")
def test_make_builds_again_after_a_change_of_any() -> None:
    show = ["make", "--silent", "--eval", "inputs: ; @echo $(BUILD_INPUTS)", "inputs"]
    inputs = subprocess.run(show, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert {"CMakeLists.txt", *(str(path.relative_to(ROOT)) for path in native_files())} <= set(inputs)


def is_within(module: str, packages: Iterable[str]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def imports_of(path: Path, skipped: Callable[[ast.AST], bool] = lambda node: False) -> set[str]:
    """Imported modules, and names after `from`; also inside functions."""
    package = path.relative_to(ROOT).parent.parts
    found: set[str] = set()
    nodes: list[ast.AST] = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        nodes += [child for child in ast.iter_child_nodes(node) if not skipped(child)]
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parents, *filter(None, [node.module])])
            found |= {f"{module}.{alias.name}" for alias in node.names}
    return found


def is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def is_for_later(node: ast.AST) -> bool:
    return is_for_types(node) or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def modules_of(*folders: str) -> dict[str, Path]:
    """Modules by name; modules outside the package by the name that scripts use."""
    found: dict[str, Path] = {}
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            parts = path.relative_to(ROOT if folder == "horovod" else ROOT / folder).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def graph_of(
    modules: dict[str, Path], skipped: Callable[[ast.AST], bool] = lambda node: False
) -> dict[str, set[str]]:
    """Module -> what it imports: of `from`, the names that are modules, else the module that they are in.
    Without `horovod` itself, which has the version, and everything else only once it is asked for it.
    """
    graph = {}
    for name, path in modules.items():
        found = imports_of(path, skipped)
        found = {each if each in modules else each.rpartition(".")[0] or each for each in found}
        graph[name] = found - {name, "horovod"}
    return graph


@pytest.mark.parametrize("package", PYTHON_LAYERS)
def test_python_imports_go_down(package: str) -> None:
    others = PYTHON_LAYERS[package].split()
    allowed = (f"horovod.{package}", *FOR_ALL, *others, *sys.stdlib_module_names)
    files = sorted((ROOT / "horovod" / package).rglob("*.py"))
    assert files
    for path in files:
        wrong = [each for each in imports_of(path) - {"horovod"} if not is_within(each, allowed)]
        assert not wrong, f"{path.relative_to(ROOT)} may not import {wrong} (docs/architecture.md)"


@pytest.mark.parametrize("light", LIGHT)
def test_what_starts_often_loads_nothing_heavy(light: str) -> None:
    """The check follows each import transitively."""
    modules = modules_of("horovod")
    graph = graph_of(modules, is_for_types if light == "horovod.runner" else is_for_later)
    assert LIGHT[light] <= {*modules}
    seen: set[str] = set()
    waiting = {name for name in modules if is_within(name, [light])} - LIGHT[light]
    while waiting:
        seen |= waiting
        waiting = {each for name in waiting for each in graph.get(name, ())} - seen
    assert [name for name in sorted(seen) if is_within(name, HEAVY)] == []
    if light != "horovod.runner":
        ours = {name for name in seen if is_within(name, ["horovod"])}
        others = {name.partition(".")[0] for name in seen - ours}
        assert len(ours) < 5 and others <= {"__future__", *sys.stdlib_module_names}, seen


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Circles of imports (Tarjan's strongly connected components)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    waiting: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        waiting.append(name)
        for other in sorted(graph[name]):
            if other not in number:
                visit(other)
            if other in waiting:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            place = waiting.index(name)
            found.append(set(waiting[place:]))
            del waiting[place:]

    for name in sorted(graph):
        if name not in number:
            visit(name)
    return [each for each in found if len(each) > 1]


def python_graph(*folders: str) -> dict[str, set[str]]:
    """Includes imports for types and inside functions."""
    modules = modules_of(*folders)
    return {name: found & {*modules} for name, found in graph_of(modules).items()}


def test_no_python_file_imports_itself_by_others() -> None:
    graph = python_graph("horovod", "benchmarks", "examples", "scripts")
    assert sum(map(len, graph.values())) > 1000, "imports are not seen any more"
    assert circles(graph) == KNOWN_CIRCLES


def test_no_native_file_includes_itself_by_others() -> None:
    files = {str(path.relative_to(NATIVE)): path for path in native_files()}
    graph = {name: {each for each in includes(path) if each in files} for name, path in files.items()}
    assert sum(map(len, graph.values())) > 500, "includes are not seen any more"
    assert circles(graph) == []


def test_a_circle_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    (tmp_path / "horovod" / "a").mkdir(parents=True)
    for name, text in {
        "__init__": "from horovod.a.types import x",
        "types": "if TYPE_CHECKING:\n    from horovod.a.late import y",
        "late": "def f() -> None:\n    from horovod.a import x, outside",
        "outside": "from horovod.a import leaf",
        "leaf": "import horovod",
    }.items():
        (tmp_path / "horovod" / "a" / f"{name}.py").write_text(text)
    assert circles(python_graph("horovod")) == [{"horovod.a", "horovod.a.types", "horovod.a.late"}]


def test_the_table_names_every_folder() -> None:
    assert set(native_layers()) == {path.name for path in NATIVE.iterdir() if path.is_dir()}


def test_every_folder_of_python_is_a_package() -> None:
    """An installation lacks other folders, although they can be imported from the source tree."""
    folders = {path.parent for path in (ROOT / "horovod").rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_two_modules_of_tests_share_a_name() -> None:
    """Of two modules with one name, pytest would import only one. Programs of ranks are exempt."""
    paths = [path for path in (ROOT / "test").rglob("*.py") if not path.parent.name.endswith("ranks")]
    names = Counter(path.stem for path in paths if path.name not in ("conftest.py", "__init__.py"))
    assert len(names) > 300, "the tests are not seen any more"
    assert [name for name, count in names.items() if count > 1] == []
