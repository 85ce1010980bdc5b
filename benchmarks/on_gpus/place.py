"""The place of a rank's tensors: host memory, or a GPU, which ranks may share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from horovod.common.build_info import build_info
from on_gpus.device import asked

# Tests set it to a module whose open_place() treats host memory as a GPU's.
PLACE_VARIABLE = "BENCHMARK_PLACE"


class NoGpu(Exception):
    """There is no GPU that both this build of the package and torch can use; the message has the reason."""


@dataclass(frozen=True)
class Place:
    """A device, and a function that waits for its work."""

    device: torch.device
    synchronize: Callable[[], None]
    is_gpu: bool = False
    facts: dict[str, Any] = field(default_factory=dict)


CPU = Place(torch.device("cpu"), lambda: None)


def why_no_gpu() -> str:
    """Return "" if ranks started here will find a GPU, otherwise the reason."""
    if os.environ.get(PLACE_VARIABLE):
        return ""
    if not torch.cuda.is_available():
        return "torch finds no GPU here (torch.cuda.is_available() is false)"
    if not build_info().cuda:
        return "this package was built without CUDA; build it where nvcc is, with HOROVOD_WITH_CUDA=1"
    return ""


def open_place(rank: int, local_rank: int) -> Place:
    """Return this rank's GPU: by its number on the host, and shared if ranks outnumber GPUs. Raises NoGpu."""
    stand_in = os.environ.get(PLACE_VARIABLE)
    if stand_in:
        made: Place = importlib.import_module(stand_in).open_place(rank, local_rank)
        return made
    why = why_no_gpu()
    if why:
        raise NoGpu(f"rank {rank}: {why}")
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    properties = torch.cuda.get_device_properties(device)
    facts = {"GPU": properties.name, "GPUs": torch.cuda.device_count(), "CUDA": torch.version.cuda}
    identity = f"GPU-{getattr(properties, 'uuid', 'unknown')}"  # older releases of PyTorch have none
    return Place(device, lambda: torch.cuda.synchronize(device), True, facts | asked(identity))
