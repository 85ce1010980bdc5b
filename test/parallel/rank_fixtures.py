"""Fixtures of tests that run in every rank of a job. The job itself is a conftest's, for the session."""

import pytest

import horovod.torch as hvd

__all__ = ["rank", "size", "together"]


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
