"""docs/textbook.md: every command is run, here or by another test; and what is refused there is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import test_readme
import typed
from page_blocks import ROOT, blocks, commands

typed.needs_mpirun()
PAGE = "docs/textbook.md"
BY_OTHERS = {  # command -> the test that runs it
    **test_readme.BY_OTHERS,
    "cd examples": "test/parallel/test_examples_mnist.py",
    "horovodrun -n 2 python3 pytorch_mnist_horovod.py --hvd True": "test/parallel/test_examples_mnist.py",
    "mpirun -n 2 python pytorch_mnist_compress.py --bit8-allreduce": "test/parallel/test_examples_mnist.py",
    "mpirun -np 2 python train.py": "test/parallel/test_running_page.py",
}
TIMELINE = "horovodrun -np 2 --timeline-filename timeline.json python train.py"
BY_OTHERS[TIMELINE] = "test/parallel/test_observability_page.py"
COMMANDS = commands(PAGE)
ROOTS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the reader has: the script of the README."""
    (script,) = blocks("README.md", "python")
    (tmp_path / "train.py").write_text(script)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command(command: str, folder: Path) -> None:
    if command in BY_OTHERS:
        assert (ROOT / BY_OTHERS[command]).exists(), f"run by {BY_OTHERS[command]}, which is gone"
        return
    assert "with 4 processes" in typed.output_of(command, folder, **ROOTS)


def test_the_commands_of_the_examples_are_still_run_by_their_test() -> None:
    text = (ROOT / "test/parallel/test_examples_mnist.py").read_text()
    typed_there = [line for line in COMMANDS if line.endswith(("--hvd True", "--bit8-allreduce"))]
    assert len(typed_there) == 2
    assert all(command in text for command in typed_there)


def test_one_dash_is_another_command_for_open_mpi_5(folder: Path) -> None:
    done = typed.run("mpirun -np 1 -bind-to none -map-by slot python train.py", folder, **ROOTS)
    assert done.returncode != 0
    assert re.search(r"Executable: none|Application: +none", done.stdout + done.stderr)
    assert "Executable: none" in (ROOT / PAGE).read_text()


@pytest.mark.parametrize(
    "options", re.findall(r"^\| `horovodrun (--.*?)` \| refused", (ROOT / PAGE).read_text(), re.M)
)
def test_what_is_refused(options: str, folder: Path) -> None:
    done = typed.run(f"horovodrun -np 2 {options.removesuffix(' ...')} x python train.py", folder)
    assert done.returncode == 2
    assert f"{options.split()[0]} is not served" in done.stderr


@pytest.mark.parametrize("name", re.findall(r"`(?:import )?(horovod\.[a-z]+)`", (ROOT / PAGE).read_text()))
def test_what_cannot_be_imported(name: str, folder: Path) -> None:
    done = typed.run(f"python -c 'import {name}'", folder)
    assert f"{name} is not served" in done.stderr
