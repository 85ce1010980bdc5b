"""Every test in a rank starts together with the other ranks', in a job that was initialised once.

With HOROVOD_TEST_THREADS ranks are threads (../threads_as_ranks.py); ../places.py has where tensors are.
"""

import sys
from pathlib import Path

import pytest

PARALLEL = Path(__file__).resolve().parents[1]
for folder in (PARALLEL, PARALLEL / "ranks", PARALLEL.parent / "single" / "support"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

import threads_as_ranks  # noqa: E402
from rank_fixtures import job, place, rank, size, together  # noqa: E402, F401

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
