"""The examples on the real MNIST: the textbook commands as they are typed, and what they must reach."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from example_runs import EXAMPLES, ROOT, needs_mpi, real_mnist, run

MNIST = real_mnist()
TEST_ACCURACY = re.compile(r"test accuracy\s+([\d.]+) % \(\d+ of (\d+)\)")
LEAST_ACCURACY = 97.0  # percent, after one epoch; six seeds gave 98.5 to 98.9

NO_DATA = "no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist"

pytestmark = [pytest.mark.timeout(540), pytest.mark.skipif(MNIST is None, reason=NO_DATA)]


def typed(command: str, folder: Path) -> str:
    """What `command`, as typed in `folder`, prints; its summary must report the accuracy expected."""
    ended = run(shlex.split(command), cwd=folder, time_limit=500, MNIST_DATA_DIR=str(MNIST))
    summaries = TEST_ACCURACY.findall(ended.stdout)
    assert len(summaries) == 1, ended.stdout
    accuracy, images = summaries[0]
    assert int(images) == 10_000
    assert float(accuracy) >= LEAST_ACCURACY, ended.stdout
    return ended.stdout


def test_textbook_horovodrun() -> None:
    printed = typed("horovodrun -n 2 python3 pytorch_mnist_horovod.py --hvd True", EXAMPLES)
    assert "bit-identical on 2 rank(s)" in printed


@needs_mpi
def test_textbook_mpirun() -> None:
    printed = typed("mpirun -n 2 python pytorch_mnist_compress.py --bit8-allreduce", EXAMPLES)
    assert "compression    bit8, 2 rank(s)" in printed
    assert "bit-identical on 2 rank(s)" in printed


@pytest.mark.slow  # CI's `make mnist` is this command; the script is trained to the same accuracy above
def test_readme_command() -> None:
    printed = typed("horovodrun -np 2 python examples/pytorch_mnist_compress.py --bit8-allreduce", ROOT)
    assert "compression    bit8, 2 rank(s)" in printed
    assert "bit-identical on 2 rank(s)" in printed
