"""The Python on docs/optimizer.md is one script, which runs with one process and with two."""

import subprocess
import sys
from pathlib import Path

import pytest
from page_blocks import blocks
from rank_jobs import run_ranks

PAGE = "docs/optimizer.md"


@pytest.fixture
def script(tmp_path: Path) -> str:
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 15, "count the page's blocks here too, so that none is lost"
    path = tmp_path / "page.py"
    path.write_text("\n".join(pieces))
    return str(path)


def test_alone(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stderr


def test_with_two_ranks(script: str) -> None:
    done = run_ranks(2, [sys.executable, "-W", "error", script], timeout=100)
    assert done.returncode == 0, done.stdout
