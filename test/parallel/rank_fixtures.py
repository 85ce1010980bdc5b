"""Fixtures of tests that run in every rank of a job: of ranks/ and of test/gpu/ranks/."""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator

import pytest
import torch
from places import Place, place_of

import horovod.torch as hvd

__all__ = ["job", "parity", "place", "process_sets", "rank", "seeded", "size", "together"]

os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"  # after the import and before init(), which reads it
_seeding = threading.Lock()
_places: list[Place] = []


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's random numbers inside the block; ranks that are threads take turns."""
    with _seeding:
        torch.manual_seed(seed)
        yield


@contextlib.contextmanager
def process_sets(*ranks: Iterable[int]) -> Iterator[list[hvd.ProcessSet]]:
    """Process sets that all ranks add for the block."""
    added = [hvd.add_process_set(list(each)) for each in ranks]
    yield added
    hvd.barrier()  # no rank uses them any longer
    for each in added:
        hvd.remove_process_set(each)


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    """The job; ranks that are threads are in it already."""
    if hvd.is_initialized():
        yield
        return
    torch.set_num_threads(1)
    hvd.init()
    _places.append(place_of(hvd.local_rank()))
    yield
    hvd.shutdown()


@pytest.fixture(autouse=True)
def together() -> None:
    hvd.barrier()


@pytest.fixture
def place() -> Place:
    return _places[0] if _places else Place()


@pytest.fixture
def rank() -> int:
    return hvd.rank()


@pytest.fixture
def size() -> int:
    return hvd.size()


@pytest.fixture
def parity(size: int) -> Iterator[list[hvd.ProcessSet]]:
    """The even ranks and the odd ones: disjoint sets, and every rank is in one."""
    with process_sets(range(0, size, 2), range(1, size, 2)) as sets:
        yield sets
