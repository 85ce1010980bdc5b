"""What a test needs to say "on the GPU" and "on the CPU" with, where the GPU is a real or an emulated one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from emulated_torch import EmulatedGpu

__all__ = ["Machine"]

T = TypeVar("T")


@dataclass(frozen=True)
class Machine:
    """``device``: where tensors and models of the GPU are made."""

    device: torch.device
    emulated: EmulatedGpu | None

    def gpu(self, tensor: torch.Tensor) -> torch.Tensor:
        """A copy on the GPU."""
        return tensor.clone() if self.emulated is not None else tensor.to(self.device)

    @contextlib.contextmanager
    def on_cpu(self) -> Iterator[None]:
        """Inside the block tensors in host memory are that, for the emulated GPU too."""
        with self.emulated.on_cpu() if self.emulated is not None else contextlib.nullcontext():
            yield

    def twice(
        self, operation: Callable[[str, Sequence[torch.Tensor]], T], tensors: Sequence[torch.Tensor]
    ) -> tuple[T, T]:
        """What an operation gives on the GPU and on the CPU, with a name for each."""
        given = operation("gpu", [self.gpu(tensor) for tensor in tensors])
        with self.on_cpu():
            return given, operation("cpu", [tensor.clone() for tensor in tensors])
