"""Gradients of GPUs under native DistributedDataParallel, on emulated ones: by the core's NCCL, or the host.

torch's part is played by gloo, which moves host memory: see emulated_torch.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ddp_jobs import run_ddp_test_files

TEST = Path(__file__).parents[1]
RANKS = TEST / "parallel" / "ddp_ranks"
sys.path.append(str(TEST))

from emulated_cuda import build as emulation  # noqa: E402

LIMIT = 400.0  # seconds: kernels run by threads of the host, several ranks on two cores


@pytest.fixture(scope="module")
def emulated() -> dict[str, str]:
    """The environment of ranks on emulated GPUs."""
    return {
        "HOROVOD_TEST_EMULATED_GPU": str(emulation.library_path()),
        "HOROVOD_NCCL_LIBRARY": str(emulation.nccl_path()),
        "EMULATED_CUDA_DEVICES": "4",
        "EMULATED_CUDA_ANY_MEMORY": "1",  # torch's tensors are of the host
    }


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("np", "transport"), [(2, "nccl"), (3, "nccl"), (2, "host")])
def test_a_reducer_of_gpu_tensors(np: int, transport: str, emulated: dict[str, str]) -> None:
    files = [RANKS / "test_reducer_gpu.py"]
    run_ddp_test_files(np, files, LIMIT, **emulated, HOROVOD_GPU_TRANSPORT=transport)
