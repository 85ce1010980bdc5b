"""Every test in a rank starts together with the other ranks', in a job that was initialised once."""

from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    torch.set_num_threads(1)
    hvd.init()
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def together(job: None) -> None:
    hvd.barrier()


@pytest.fixture
def rank() -> int:
    return hvd.rank()


@pytest.fixture
def size() -> int:
    return hvd.size()
