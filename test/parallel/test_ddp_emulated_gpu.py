"""Gradients of GPUs under native DistributedDataParallel, on emulated GPUs: by the core's NCCL, or the host.

gloo replaces torch's NCCL and moves host memory: see emulated_torch.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from ddp_jobs import run_ddp_test_files
from gpu_jobs import emulated_gpus

RANKS = Path(__file__).parent / "ddp_ranks"
LIMIT = 400.0  # seconds: threads of the host run kernels, for several ranks on two cores


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("np", "transport"), [(2, "nccl"), (3, "nccl"), (2, "host")])
def test_a_reducer_of_gpu_tensors(np: int, transport: str) -> None:
    files = [RANKS / "test_reducer.py"]
    run_ddp_test_files(np, files, LIMIT, **emulated_gpus(), HOROVOD_GPU_TRANSPORT=transport)
