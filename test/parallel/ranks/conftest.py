"""Every test in a rank starts together with the other ranks', in a job initialised once.

With HOROVOD_TEST_THREADS ranks are threads (../threads_as_ranks.py); ../places.py defines the place of
tensors.
"""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1]))
sys.path.append(str(Path(__file__).resolve().parents[2] / "single" / "support"))

import threads_as_ranks
from rank_fixtures import job, parity, place, rank, size, together  # noqa: F401

THREADS = threads_as_ranks.ThreadRanks(threads_as_ranks.COUNT)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if threads_as_ranks.COUNT:
        for item in items:
            item.fixturenames[:] = [name for name in item.fixturenames if name in threads_as_ranks.OF_PYTEST]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not threads_as_ranks.COUNT:
        return None
    THREADS.run(lambda: threads_as_ranks.call_in_rank(pyfuncitem))
    return True
