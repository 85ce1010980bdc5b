"""An unbuilt clone, in which Python imports the clone's sources instead of the installation."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import horovod
from horovod.common.build_info import explanation, native_module, why_unbuilt
from horovod.lab.plan import PARALLEL_EXAMPLE, SERIAL_EXAMPLE

PACKAGE = Path(horovod.__file__).resolve().parent
HIDES = "these are its sources, not built, which hide the horovod installed in"
# An editable installation of older setuptools finds modules by a hook, and finds ours for the clone too.
WITHOUT_EDITABLE = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "editable" not in str(finder).lower()]
"""
IMPORT = f"{WITHOUT_EDITABLE}import horovod.common.basics"
CHECK_BUILD = """
import sys
sys.path.insert(0, sys.argv[1])
from horovod.runner.launch import main
sys.exit(main(["--check-build"]))
"""


@pytest.fixture(scope="module")
def fitting_clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    built = shutil.ignore_patterns("*.so", "build_info.json", "__pycache__")
    shutil.copytree(PACKAGE, folder / "horovod", ignore=built)
    (folder / "setup.py").touch()
    (folder / "examples").mkdir()
    for example in (SERIAL_EXAMPLE, PARALLEL_EXAMPLE):
        (folder / "examples" / example.name).touch()
    return folder


@pytest.fixture(scope="module")
def clone(fitting_clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone whose core has changed since the build."""
    folder = tmp_path_factory.mktemp("changed") / "clone"
    shutil.copytree(fitting_clone, folder)
    with (folder / "horovod" / "native" / "base" / "dtype.h").open("a") as header:
        header.write("// changed\n")
    return folder


def typed(clone: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run in the clone, with this package as the installed one."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_package_that_is_built_has_nothing_to_explain() -> None:
    assert why_unbuilt() == ""


@pytest.mark.parametrize("words", [["-m", "horovod.lab"], ["-m", "horovod.runner", "-np", "2", "hostname"]])
def test_what_hides_the_installation_is_said_with_the_way_out(words: list[str], clone: Path) -> None:
    done = typed(clone, *words)
    assert done.returncode == 2 and done.stdout == ""
    assert f"{clone}/horovod lacks its native module: {HIDES} {PACKAGE.parent}, whose core is" in done.stderr
    assert f"`cd {clone} && python -m pip install .`" in done.stderr
    assert "no MPI" not in done.stderr and done.stderr.count("\n") == 1
    if sys.version_info >= (3, 11):
        (way_out,) = re.findall(r"Or type `(.*)`\.$", done.stderr.strip())
        assert shlex.split(way_out) == [sys.executable, "-P", *words]


@pytest.mark.skipif(sys.version_info < (3, 11), reason="Python 3.11 brought -P")
def test_the_way_out_works(clone: Path) -> None:
    answer = typed(clone, "-P", "-m", "horovod.runner", "-np", "1", "echo", "it works")
    assert answer.stdout == "[0]<stdout>:it works\n", answer.stderr


def test_the_lab_of_an_installation_finds_the_examples_of_the_clone(clone: Path, tmp_path: Path) -> None:
    shutil.copytree(clone / "horovod", tmp_path / "horovod")
    show = "import sys; sys.path.insert(0, sys.argv[1]); from horovod.lab import plan; print(plan.EXAMPLES)"
    assert typed(clone, "-c", show, str(tmp_path)).stdout == f"{clone / 'examples'}\n"


def test_importing_the_core_says_the_same(clone: Path) -> None:
    done = typed(clone, "-c", IMPORT)
    assert f"ModuleNotFoundError: {clone}/horovod lacks its native module: {HIDES}" in done.stderr


def test_check_build_says_the_same_and_fails(clone: Path) -> None:
    done = typed(clone, "-m", "horovod.runner", "--check-build")
    assert (done.returncode, done.stdout.count(HIDES)) == (1, 1)


def test_check_build_of_an_installation_fails_where_a_clone_hides_it(clone: Path) -> None:
    """As with the command horovodrun, whose sys.path lacks the current folder; a script of a rank has it."""
    done = typed(clone, "-P" if sys.version_info >= (3, 11) else "-I", "-c", CHECK_BUILD, str(PACKAGE.parent))
    assert (done.returncode, done.stdout.count(HIDES)) == (1, 1)


def test_a_clone_loads_the_core_that_was_built_of_the_same_sources(fitting_clone: Path) -> None:
    show = (
        "from horovod import _native; import horovod; from horovod.common.build_info import build_info; "
        "print(horovod.__file__, _native.__file__, build_info().digest == _native.build_digest())"
    )
    said = typed(fitting_clone, "-c", WITHOUT_EDITABLE + show).stdout.split()
    native = Path(str(native_module(PACKAGE)))
    assert said == [str(fitting_clone / "horovod" / "__init__.py"), str(native), "True"]


def test_a_job_runs_in_such_a_clone(fitting_clone: Path) -> None:
    script = "import torch, horovod.torch as hvd; hvd.init(); print(hvd.allreduce(torch.ones(1), op=hvd.Sum))"
    (fitting_clone / "sums.py").write_text(script)
    done = typed(fitting_clone, "-m", "horovod.runner", "-np", "2", sys.executable, "sums.py")
    said = [f"[{rank}]<stdout>:tensor([2.])" for rank in (0, 1)]
    assert sorted(done.stdout.splitlines()) == said, done.stderr


def test_check_build_of_such_a_clone(fitting_clone: Path) -> None:
    done = typed(fitting_clone, "-m", "horovod.runner", "--check-build")
    assert done.returncode == 0 and HIDES not in done.stdout


def test_pythonpath_may_be_what_names_the_clone(clone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(clone))
    said = explanation(clone / "horovod", [str(clone), str(PACKAGE.parent)], ["python"])
    assert said.endswith(f"Take {clone} out of PYTHONPATH")


def test_where_nothing_is_installed(clone: Path) -> None:
    said = explanation(clone / "horovod", [str(clone)], ["python"])
    assert f"no other horovod is installed for this Python, {sys.executable}" in said
    assert f"`cd {clone} && python -m pip install -e .`" in said


def test_what_was_built_for_another_python(tmp_path: Path) -> None:
    package = tmp_path / "horovod"
    package.mkdir()
    other = package / "_native.cpython-27-x86_64-linux-gnu.so"
    assert other.name.removeprefix("_native") not in EXTENSION_SUFFIXES
    other.touch()
    said = explanation(package, [], ["python"])
    ends = f"install horovod again. It was built for another Python: {other.name}."
    assert said.endswith(f"the installation is not complete; {ends}")
