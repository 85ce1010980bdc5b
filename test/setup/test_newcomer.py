"""README and the quick start as a newcomer reads them: in a clone, in order, every command as printed.

The package built from these sources replaces the result of `pip install .`, which takes a minute; the slow
variant types that too, in a separate environment.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest
from clean_shell import copy_sources, typed
from page_blocks import ROOT, Block, blocks_of

import horovod

INSTALL = "pip install ."
# test/cluster/test_pages_on_hosts.py has the hosts for it.
ELSEWHERE = "horovodrun -np 4 -H node1:2,node2:2 python train.py"
VARIES = re.compile(r"(?<=loss )[\d.]+|\d+(?= % of the time)")  # test_pages.py compares the loss
PAGES = [("docs/index.md", ""), ("README.md", "Use it in your own environment")]
HOROVODRUN = f"""#!{sys.executable}
import sys
from horovod.runner.launch import run_commandline
sys.exit(run_commandline())
"""


class Place(NamedTuple):
    """A clone, and the environment in which commands are typed there."""

    clone: Path
    variables: dict[str, str]
    installs: bool  # or the package is installed before


def environment(*programs: Path, **more: str) -> dict[str, str]:
    path = os.pathsep.join([*map(str, programs), os.environ.get("PATH", os.defpath)])
    return {"PATH": path, "OMP_NUM_THREADS": "1", **more}


def installed(folder: Path) -> Place:
    """Check that horovodrun imports neither from its folder nor the current one, like any console script."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "horovodrun").write_text(HOROVODRUN)
    (programs / "horovodrun").chmod(0o755)
    packages = os.pathsep.join([str(Path(horovod.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    variables = environment(programs, Path(sys.executable).parent, PYTHONPATH=packages)
    return Place(folder / "clone", variables, installs=False)


def to_install(folder: Path) -> Place:
    """An environment with PyTorch and without horovod; commands find this environment's PyTorch after it."""
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    torch = find_spec("torch")
    assert torch is not None and torch.origin is not None
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    (packages / "of_pytorch.pth").write_text(f"{Path(torch.origin).parents[1]}\n")
    return Place(folder / "clone", environment(folder / "venv" / "bin"), installs=True)


TO_INSTALL = pytest.param("to install", marks=[pytest.mark.slow, pytest.mark.timeout(900)])


@pytest.fixture(scope="module", params=["installed", TO_INSTALL])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "clone").mkdir()
    made = {"installed": installed, "to install": to_install}[request.param](folder)
    copy_sources(made.clone)
    assert not list((made.clone / "horovod").glob("*.so"))
    return made


def file_to_save(page: str, section: str) -> str:
    """Return the page's name for its script."""
    text = (ROOT / page).read_text()
    (name,) = re.findall(r"Save it as `(\w+\.py)`", text[text.index(f"## {section}") if section else 0 :])
    return str(name)


def check_shown(shown: str, said: str) -> None:
    assert set(VARIES.sub("", shown).splitlines()) <= set(VARIES.sub("", said).splitlines()), said


@pytest.mark.parametrize(("page", "section"), PAGES, ids=[page for page, _ in PAGES])
def test_in_order_in_a_clone(page: str, section: str, place: Place) -> None:
    pieces: list[Block] = blocks_of(page, section)
    (script,) = (piece.body for piece in pieces if piece.language == "python")
    said, count = "", 0
    for piece in pieces:
        if piece.language == "python":
            (place.clone / file_to_save(page, section)).write_text(script)
        elif piece.language == "text":
            check_shown(piece.body, said)
        for command in piece.body.splitlines() if piece.language == "sh" else []:
            if command != ELSEWHERE and (command != INSTALL or place.installs):
                said, count = typed(command, place.clone, **place.variables), count + 1
                assert "Traceback" not in said and "Warning" not in said, f"{command}\n{said}"
    assert count >= 2


def test_both_pages_begin_with_the_installation() -> None:
    for page, section in PAGES:
        first = next(piece for piece in blocks_of(page, section) if piece.language == "sh")
        assert first.body == f"{INSTALL}\n"
