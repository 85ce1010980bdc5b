"""Fixtures of tests that run in every rank of a job. The job itself is a conftest's, for the session."""

import contextlib
import threading
from collections.abc import Iterator

import pytest
import torch

import horovod.torch as hvd

__all__ = ["rank", "seeded", "size", "together"]

_seeding = threading.Lock()


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside the block torch's random numbers are those of this seed; ranks that are threads take turns."""
    with _seeding:
        torch.manual_seed(seed)
        yield


@pytest.fixture(autouse=True)
def together() -> None:
    """Every test starts together with the other ranks'."""
    hvd.barrier()


@pytest.fixture
def rank() -> int:
    return hvd.rank()


@pytest.fixture
def size() -> int:
    return hvd.size()
