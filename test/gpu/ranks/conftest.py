"""Every test in a rank starts together with the other ranks', with a GPU: a real one, or the emulated one."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[2] / "parallel"))
sys.path.append(str(Path(__file__).parent))

import emulated_torch
from machine import Machine
from rank_fixtures import rank, size, together  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def machine() -> Iterator[Machine]:
    torch.set_num_threads(1)
    hvd.init(process_sets="dynamic")
    emulated = emulated_torch.asked_for(hvd.local_rank())
    if emulated is not None:
        emulated.install()
        device = torch.device("cpu")
    else:
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    yield Machine(device, emulated)
    hvd.shutdown()
