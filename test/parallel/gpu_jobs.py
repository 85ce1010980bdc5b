"""The files of ranks/ that run in different places, and the variables that give ranks emulated GPUs."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
sys.path.append(str(HERE.parent))

from emulated_cuda import build as emulation  # noqa: E402

FILES = {
    "operations": HERE / "ranks" / "test_contract.py",
    "compression": HERE / "ranks" / "test_contract_compression.py",
    "streams": HERE.parent / "gpu" / "ranks" / "test_gpu_streams.py",
    "training": HERE / "ranks" / "test_optimizer_places.py",
    "batch norm": HERE / "ranks" / "test_sync_batch_norm.py",
    "sparse": HERE / "ranks" / "test_sparse_and_gradients.py",
    "errors": HERE / "ranks" / "test_contract_errors.py",
    "in flight": HERE / "ranks" / "test_operations_in_flight.py",
    "joins": HERE / "ranks" / "test_api_join.py",
}
ALONE = list(FILES)[:4]  # a single rank has no peer


@cache
def emulated_gpus() -> Mapping[str, str]:
    """Return the environment of ranks on emulated GPUs, one for each rank."""
    return {
        "HOROVOD_TEST_EMULATED_GPU": str(emulation.library_path()),
        "HOROVOD_NCCL_LIBRARY": str(emulation.nccl_path()),
        "EMULATED_CUDA_DEVICES": "4",
        "EMULATED_CUDA_ANY_MEMORY": "1",  # torch's tensors are in host memory
    }
