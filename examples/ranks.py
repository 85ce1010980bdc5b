"""Shared by all examples: a process' place among the ranks, its device and cores, checksums of models.

This file does not know Horovod.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Ranks:
    """This process' place in the job; the default is a job of one process."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    local_size: int = 1


def positive(text: str) -> int:
    """An integer of at least 1, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return number


def prepare(args: argparse.Namespace, ranks: Ranks, serves_cuda: bool = True) -> torch.device:
    """Set the seed and this rank's share of the cores. Returns the device to train on.

    $OMP_NUM_THREADS, if set, gives the number of threads instead, as for torch itself. A rank trains on the
    GPU of its local number; if a host has more ranks than GPUs, some share one. serves_cuda: whether the
    library that combines the ranks' gradients accepts them on a GPU.
    """
    torch.manual_seed(args.seed)
    # Otherwise each rank would start a thread per core, and the ranks of a host would wait for each other.
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, usable_cores() // ranks.local_size))
    if args.no_cuda or not torch.cuda.is_available():
        return torch.device("cpu")
    if not serves_cuda:
        if ranks.rank == 0:
            print(
                "training on the CPU: this Horovod was built without CUDA; build it with HOROVOD_WITH_CUDA=1",
                flush=True,
            )
        return torch.device("cpu")
    device = torch.device("cuda", ranks.local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


def on_gpu(device: torch.device) -> bool:
    """Whether the device is a GPU, to which copies from pinned memory need no wait (non_blocking)."""
    return device.type == "cuda"


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checksum(model: torch.nn.Module) -> str:
    """SHA-256 over the bytes of all parameters and buffers: equal if two models are bit-identical."""
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def parameters_text(checksums: list[str]) -> str:
    """The text about the checksums of all ranks, given in rank order."""
    if len(set(checksums)) == 1:
        return f"bit-identical on {len(checksums)} rank(s), SHA-256 {checksums[0][:16]}"
    differing = [rank for rank, value in enumerate(checksums) if value != checksums[0]]
    return f"DIFFER from rank 0's on rank(s) {', '.join(map(str, differing))}"
