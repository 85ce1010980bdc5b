"""Every test in a rank starts together with the other ranks', in a job that was initialised once.

With HOROVOD_TEST_EMULATED_GPU in the environment, on an emulated GPU: see ../emulated_torch.py. With
HOROVOD_TEST_THREADS, ranks are threads: see ../threads_as_ranks.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1]))

import emulated_torch
import threads_as_ranks
from rank_fixtures import rank, size, together  # noqa: F401

THREADS = threads_as_ranks.ThreadRanks(threads_as_ranks.COUNT)


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    if threads_as_ranks.COUNT:
        yield  # each rank's thread is in one
        return
    torch.set_num_threads(1)
    hvd.init()
    gpu = emulated_torch.asked_for(hvd.local_rank())
    if gpu is not None:
        gpu.install()
    yield
    hvd.shutdown()


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
