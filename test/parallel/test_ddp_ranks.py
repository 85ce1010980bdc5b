"""horovod.torch.ddp with real ranks, started as torchrun does: the files of ddp_ranks/, with one to four.

They run one after the other in one job, since starting ranks costs more than most of them. Ranks stop at what
fails first; to run one file by itself see ddp_jobs.py.
"""

from pathlib import Path

import pytest
from ddp_jobs import run_ddp_test_files

FILES = sorted((Path(__file__).parent / "ddp_ranks").glob("test_*.py"))
LIMIT = 400.0  # seconds


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("np", [1, pytest.param(2, marks=pytest.mark.quick), 3, 4])
def test_in_ddp_ranks(np: int) -> None:
    run_ddp_test_files(np, FILES, LIMIT)
