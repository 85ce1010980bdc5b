"""horovod.torch.ddp with real ranks, started as torchrun does: the files of ddp_ranks/, with one to four.

They run one after the other in one job, because starting ranks costs more than most of them. Ranks stop at
the first failure; ddp_jobs.py says how to run one file by itself. Every change is tested with two ranks. CI
also has each file with one rank, and half of them with three; `slow` tests are all files with three and four.
"""

from pathlib import Path
from typing import Any

import pytest
from ddp_jobs import run_ddp_test_files

FILES = sorted((Path(__file__).parent / "ddp_ranks").glob("test_*.py"))
LIMIT = 400.0  # seconds


def later(np: int) -> Any:
    return pytest.param(np, marks=pytest.mark.slow)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("np", [1, pytest.param(2, marks=pytest.mark.quick), later(3), later(4)])
def test_in_ddp_ranks(np: int) -> None:
    run_ddp_test_files(np, FILES, LIMIT)


@pytest.mark.timeout(LIMIT + 30)
def test_half_of_the_files_in_ddp_ranks() -> None:
    run_ddp_test_files(3, FILES[::2], LIMIT)
