"""Makes benchmarks treat host memory as an emulated GPU's: BENCHMARK_PLACE names it to their ranks."""

from __future__ import annotations

import torch
from emulated_torch import asked_for
from gpus import Place

__all__ = ["open_place"]


def open_place(rank: int, local_rank: int) -> Place:
    gpu = asked_for(local_rank)
    assert gpu is not None, "HOROVOD_TEST_EMULATED_GPU is not set"
    gpu.install()
    facts = {"GPU": f"emulated, number {gpu.index}"}
    return Place(torch.device("cpu"), lambda: gpu.wait_for(gpu.stream), is_gpu=True, facts=facts)
