"""The Python on docs/process_sets.md is two scripts, which run with four ranks."""

import sys
from pathlib import Path

import pytest
from page_blocks import blocks
from rank_jobs import run_ranks

PAGE = "docs/process_sets.md"


def run(pieces: list[str], folder: Path) -> None:
    path = folder / "page.py"
    path.write_text("\n".join(pieces))
    done = run_ranks(4, [sys.executable, "-W", "error", str(path)], timeout=100)
    assert done.returncode == 0, done.stdout


def pages() -> tuple[list[str], list[str]]:
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 8, "count the page's blocks here too, so that none is lost"
    return pieces[:6], pieces[6:]


def test_sets(tmp_path: Path) -> None:
    run(pages()[0], tmp_path)


def test_communicators(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    run(pages()[1], tmp_path)
