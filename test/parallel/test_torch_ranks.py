"""horovod.torch with real ranks: every file of ranks/, with two and four; and by messages, not memory.

Files run one after the other in one job: starting ranks costs more than most of them.
"""

import os
import sys
from pathlib import Path

import pytest
from rank_jobs import run_ranks, run_test_file, run_test_files

RANKS = Path(__file__).parent / "ranks"
# Two that take long, and one that init() is to read settings for which the others shall not have.
ALONE = ("test_long_run", "test_random_programs", "test_optimizer_checkpoint")


def jobs() -> dict[str, list[Path]]:
    by_job: dict[str, list[Path]] = {}
    for file in sorted(RANKS.glob("test_*.py")):
        job = "api" if file.stem.startswith("test_api_") else "others"
        job = file.stem if file.stem in ALONE else job
        by_job.setdefault(job, []).append(file)
    return by_job


@pytest.mark.timeout(330)
@pytest.mark.parametrize("np", [2, 4])
@pytest.mark.parametrize("job", jobs())
def test_in_ranks(job: str, np: int) -> None:
    run_test_files(np, jobs()[job], 300.0)


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
