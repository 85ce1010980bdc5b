"""Every test in a rank starts together with the other ranks', in a job that was initialised once.

With HOROVOD_TEST_EMULATED_GPU in the environment, on an emulated GPU: see ../emulated_torch.py.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1]))

import emulated_torch
from rank_fixtures import rank, size, together  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    torch.set_num_threads(1)
    hvd.init()
    gpu = emulated_torch.asked_for(hvd.local_rank())
    if gpu is not None:
        gpu.install()
    yield
    hvd.shutdown()
