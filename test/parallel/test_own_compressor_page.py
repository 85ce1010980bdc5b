"""docs/own_compressor.md: its script on two ranks, and its commands with the file that it tells to save."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from example_runs import real_mnist
from page_blocks import ROOT, blocks
from printing_page import check_page, run_with_two_ranks
from typed import run

pytestmark = pytest.mark.timeout(300)
PAGE = "docs/own_compressor.md"
OF_THE_MODULE = 4  # the first blocks, which are saved as my_compressors.py
TOLERANCE = 0.5  # what a training has left after 100 steps, and signs decide by the last bit
TRAINS, COMPARES = (block.strip() for block in blocks(PAGE, "sh"))


def test_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    check_page(PAGE, 10, tmp_path, run_with_two_ranks, TOLERANCE)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the page's reader is: the file saved, beside train.py of the README, in a clone."""
    module = "\n".join(blocks(PAGE, "python")[:OF_THE_MODULE])
    (tmp_path / "my_compressors.py").write_text(module)
    (train,) = blocks("README.md", "python")
    unsaid, lines = re.subn(r"^    compression=.*\n", "", train, flags=re.MULTILINE)
    assert lines == 1
    (tmp_path / "train.py").write_text(f"import my_compressors\n{unsaid}")
    (tmp_path / "benchmarks").symlink_to(ROOT / "benchmarks")
    return tmp_path


def shell(command: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return run(command, folder, limit=250, imports_from_it=True, **more)


def test_a_script_that_imports_it_is_given_it_by_name(folder: Path) -> None:
    done = shell(TRAINS, folder)
    assert done.returncode == 0, done.stderr
    assert re.search(r"loss [\d.]+ with 2 processes", done.stdout)
    unknown = shell(TRAINS.replace("signs", "sings"), folder)
    assert unknown.returncode != 0
    assert "'sings'; there are bf16" in unknown.stderr and "signs" in unknown.stderr


def test_the_convergence_benchmark_knows_it(folder: Path) -> None:
    """The page's command, but for the number of steps."""
    if real_mnist() is None:
        pytest.skip("no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist")
    quick = f"{COMPARES} --steps 3 --seeds 1 --max-seeds 1"
    done = shell(quick, folder, MNIST_DATA_DIR=str(real_mnist()))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3/3: mnist, top_blocks:ratio=0.05, seed 1" in done.stdout
