"""horovod.torch.ddp with real ranks, started as torchrun does: every file of ddp_ranks/, with one to four.

Files of one subject (the word after test_) run one after the other in one job: starting ranks costs more than
most of them.
"""

from pathlib import Path

import pytest
from ddp_jobs import run_ddp_test_files

RANKS = Path(__file__).parent / "ddp_ranks"
LIMIT = 300.0  # seconds


def jobs() -> dict[str, list[Path]]:
    by_subject: dict[str, list[Path]] = {}
    for file in sorted(RANKS.glob("test_*.py")):
        by_subject.setdefault(file.stem.split("_")[1], []).append(file)
    return by_subject


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("np", [1, 2, 3, 4])
@pytest.mark.parametrize("job", jobs())
def test_in_ddp_ranks(job: str, np: int) -> None:
    run_ddp_test_files(np, jobs()[job], LIMIT)
