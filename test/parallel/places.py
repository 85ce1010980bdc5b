"""The place of a test's tensors: host memory, an emulated GPU, or a real one.

HOROVOD_TEST_EMULATED_GPU=LIBRARY    on an emulated GPU: see emulated_torch.py
HOROVOD_TEST_GPU=1                   on one of the GPUs of this host
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from emulated_torch import EmulatedGpu, asked_for

__all__ = ["Place", "place_of"]

T = TypeVar("T")
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Place:
    """A place. ``device``: of its tensors and models."""

    device: torch.device = CPU
    emulated: EmulatedGpu | None = None

    @property
    def is_gpu(self) -> bool:
        return self.emulated is not None or self.device.type != "cpu"

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in this place, with the same strides."""
        return tensor.clone() if self.device.type == "cpu" else tensor.to(self.device)

    @contextlib.contextmanager
    def on_cpu(self) -> Iterator[None]:
        """Inside the block tensors in host memory do not count as an emulated GPU's."""
        with self.emulated.on_cpu() if self.emulated is not None else contextlib.nullcontext():
            yield

    def twice(
        self, operation: Callable[[str, Sequence[torch.Tensor]], T], tensors: Sequence[torch.Tensor]
    ) -> tuple[T, T]:
        """Yield an operation's results here and on the CPU, with a name for each."""
        given = operation("here", [self.put(tensor) for tensor in tensors])
        with self.on_cpu():
            return given, operation("cpu", [tensor.clone() for tensor in tensors])


def place_of(local_rank: int) -> Place:
    """Return the place that the environment names. An emulated GPU counts from now on."""
    emulated = asked_for(local_rank)
    if emulated is not None:
        emulated.install()
        return Place(emulated=emulated)
    if "HOROVOD_TEST_GPU" not in os.environ:
        return Place()
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return Place(device)
