"""Every test in a rank starts together with the other ranks', in a process group (gloo) made once.

An operation that waits in vain fails after TIMEOUT with torch's own error. With HOROVOD_TEST_EMULATED_GPU in
the environment tensors count as those of an emulated GPU: see ../emulated_torch.py.
"""

import datetime
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

sys.path.append(str(Path(__file__).resolve().parents[1]))

import emulated_torch

TIMEOUT = datetime.timedelta(seconds=60)


@pytest.fixture(scope="session", autouse=True)
def job() -> Iterator[None]:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    gpu = emulated_torch.asked_for(int(os.environ["LOCAL_RANK"]))
    if gpu is not None:
        gpu.install()
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def together(job: None) -> None:
    dist.barrier()


@pytest.fixture
def rank() -> int:
    return dist.get_rank()


@pytest.fixture
def size() -> int:
    return dist.get_world_size()
