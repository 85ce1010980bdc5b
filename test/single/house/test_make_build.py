"""The commands of `make` after a change. A script replaces Python and logs its arguments."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# show_build.py runs its command, and does nothing else here.
PYTHON = """#!/bin/sh
echo "$HOROVOD_DEVELOPER $*" >>"$ASKED"
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="no make")


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """An existing environment, without the package."""
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    for stamp in (".made", ".developer-0"):
        (tmp_path / stamp).touch()
    return tmp_path


def by_hand() -> dict[str, str]:
    """The environment without make's variables, as `make test` may run the tests."""
    return {name: text for name, text in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL")}


def asked(venv: Path, *options: str) -> list[str]:
    """The commands that the package's target gives Python; `-W FILE` makes make treat FILE as changed."""
    notes = venv / "asked"
    notes.unlink(missing_ok=True)
    subprocess.run(
        ["make", f"VENV={venv}", "HOROVOD_DEVELOPER=0", *options, f"{venv}/.package"],
        cwd=ROOT,
        env=by_hand() | {"ASKED": str(notes)},
        check=True,
        capture_output=True,
    )
    return (
        [line.replace(str(venv), "VENV") for line in notes.read_text().splitlines()] if notes.exists() else []
    )


def test_pytorch_waits_for_what_the_build_needs(venv: Path) -> None:
    """Both install setuptools, and two concurrent pips break each other."""
    database = subprocess.run(
        ["make", "--print-data-base", "--question", f"VENV={venv}", "help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout
    for stamp in (".torch", ".package"):
        assert re.search(rf"^{venv}/{re.escape(stamp)}: .*\| {venv}/\.build-needs$", database, re.MULTILINE)


def test_first_what_the_build_needs_is_installed_then_the_package_beside_it(venv: Path) -> None:
    pip = "scripts/show_build.py VENV/bin/python -m pip --disable-pip-version-check install --no-compile"
    requirements, first, second = asked(venv)
    assert requirements.split()[1:] == ["-m", "build_support.requirements"]
    assert first.startswith("0 scripts/show_build.py --log install.log VENV/bin/python -m pip ")
    assert second == f"0 {pip} --no-build-isolation --verbose --editable ."


@pytest.mark.parametrize(
    "changed", ["horovod/native/schedule/engine.cc", "horovod/common/options/__init__.py", "CMakeLists.txt"]
)
def test_after_a_change_of_the_core_only_it_is_built(changed: str, venv: Path) -> None:
    (venv / ".build-needs").touch()
    (venv / ".package").touch()
    assert asked(venv) == []
    command = "scripts/show_build.py VENV/bin/python setup.py build_ext --inplace"
    assert asked(venv, "-W", changed) == [f"0 {command}"]


def test_what_is_generated(venv: Path) -> None:
    """The stub, the page and the sentences, after the build, which writes the core's settings."""
    command = ["make", "--dry-run", f"VENV={venv}", "--old-file", f"{venv}/.tests", "generated"]
    said = subprocess.run(command, cwd=ROOT, env=by_hand(), check=True, capture_output=True, text=True).stdout
    lines = said.replace(f"{venv}/bin/python ", "").splitlines()
    assert {"scripts/make_stub.py", "-m horovod.runner.configuration_page >docs/configuration.md"} <= {*lines}
    database = ["make", "--print-data-base", "--question", f"VENV={venv}", "help"]
    rules = subprocess.run(database, cwd=ROOT, capture_output=True, text=True).stdout
    assert re.search(rf"^generated: {venv}/\.tests$", rules, re.MULTILINE)


@pytest.mark.parametrize("changed", ["pyproject.toml", "setup.py", "build_support/native.py"])
def test_after_a_change_of_the_package_it_is_installed(changed: str, venv: Path) -> None:
    (venv / ".build-needs").touch()
    (venv / ".package").touch()
    assert asked(venv, "-W", changed, "-W", "CMakeLists.txt")[-1].endswith("--editable .")


@pytest.mark.parametrize(
    ("chosen", "pytest_code", "run", "code"),
    [
        ("test/single/tune test/single/lab", 0, ["test/single/tune test/single/lab"], 0),
        ("test/single/tune", 1, ["test/single/tune"], 2),
        ("test/single/tune", 5, ["test/single/tune"], 0),  # all of them are slow
        ("", 0, [], 0),
        ("all", 0, ["test/single", "test/parallel test/cluster"], 0),
    ],
)
def test_what_has_changed_is_checked_and_tested(
    chosen: str, pytest_code: int, run: list[str], code: int, venv: Path
) -> None:
    stamps = "build-needs torch package base examples lab tests"
    for stamp in stamps.split():
        (venv / f".{stamp}").touch()
    notes, python = venv / "asked", venv / "bin" / "python"
    python.write_text(PYTHON + 'case $1 in scripts/changed_tests.py) echo "$CHOSEN" ;; esac\n')
    for name, last in (("pytest", f"case $1 in --durations) exit {pytest_code} ;; esac\n"), ("ruff", "")):
        (venv / "bin" / name).write_text(PYTHON.replace("$*", f"{name} $*") + last)
        (venv / "bin" / name).chmod(0o755)
    done = subprocess.run(
        ["make", f"VENV={venv}", "HOROVOD_DEVELOPER=0", "test", "CHANGED=HEAD~3"],
        cwd=ROOT,
        env=by_hand() | {"ASKED": str(notes), "CHOSEN": chosen},
        capture_output=True,
        text=True,
    )
    lines = [line[2:] for line in notes.read_text().splitlines()]  # without the value of HOROVOD_DEVELOPER
    assert done.returncode == code, done.stdout + done.stderr
    assert lines[0] == "scripts/changed_tests.py HEAD~3" and "ruff check ." in lines
    tests = [line for line in lines if line.startswith("pytest --durations")]
    assert len(tests) == len(run)
    assert all(line.endswith(f" {words}") for line, words in zip(tests, run, strict=True)), tests
