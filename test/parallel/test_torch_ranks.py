"""horovod.torch with real ranks: every file of ranks/, with two and four; and by messages, not memory.

The test_api files are a suite as a Horovod user would write it: they run one after the other in one job.
"""

import os
import sys
from pathlib import Path

import pytest
from rank_jobs import TIME_LIMIT, run_ranks, run_test_file, run_test_files

RANKS = Path(__file__).parent / "ranks"
API = sorted(RANKS.glob("test_api_*.py"))
FILES = sorted(set(RANKS.glob("test_*.py")) - set(API))
LIMITS = {"test_long_run": 300.0, "test_random_programs": 300.0}  # seconds


@pytest.mark.timeout(330)
@pytest.mark.parametrize("np", [2, 4])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_in_ranks(file: Path, np: int) -> None:
    run_test_file(np, file, LIMITS.get(file.stem, TIME_LIMIT))


@pytest.mark.timeout(150)
@pytest.mark.parametrize("np", [2, 4])
def test_api_in_ranks(np: int) -> None:
    run_test_files(np, API)


def test_nothing_is_left_in_shared_memory() -> None:
    before = set(os.listdir("/dev/shm"))
    code = "import torch, horovod.torch as hvd; hvd.init(); hvd.allreduce(torch.ones(10**6))"
    for end in ("; hvd.shutdown()", "", "; raise SystemExit(3)"):
        run_ranks(2, [sys.executable, "-c", code + end])
        assert set(os.listdir("/dev/shm")) <= before


@pytest.mark.timeout(150)
@pytest.mark.parametrize(("name", "np"), [("test_collectives.py", 2), ("test_compression.py", 4)])
def test_in_ranks_that_exchange_messages(name: str, np: int) -> None:
    run_test_file(np, RANKS / name, HOROVOD_TRANSPORT="mpi")
