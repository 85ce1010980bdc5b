"""For conftest.py in folders of ranks' tests: collected in ranks only, and each rank reports how it ended.

ranks/ is for ranks of an MPI job, and ddp_ranks/ for ranks that torchrun started.
"""

import os
from pathlib import Path

import pytest

__all__ = ["RANK", "collect_ignore_glob", "pytest_sessionfinish"]

_MPI_RANK = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
_TORCHRUN_RANK = os.environ["RANK"] if "TORCHELASTIC_RUN_ID" in os.environ else None
RANK = _MPI_RANK or _TORCHRUN_RANK
collect_ignore_glob = [
    *(["ranks/*"] if _MPI_RANK is None and not os.environ.get("HOROVOD_TEST_THREADS") else []),
    *(["ddp_ranks/*"] if _TORCHRUN_RANK is None else []),
]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reports = os.environ.get("HOROVOD_TEST_REPORTS")
    if RANK is not None and reports is not None:
        (Path(reports) / RANK).write_text(str(int(exitstatus)))
