"""What is in ranks/ is collected inside a rank only, and each rank says how its session ended."""

import os
from pathlib import Path

import pytest

RANK = os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK"))
collect_ignore_glob = [] if RANK is not None else ["ranks/*"]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reports = os.environ.get("HOROVOD_TEST_REPORTS")
    if RANK is not None and reports is not None:
        (Path(reports) / RANK).write_text(str(int(exitstatus)))
