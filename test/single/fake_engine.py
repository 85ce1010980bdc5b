"""A job of several ranks that exists in the imagination of one process, and writes down what is asked of it.

Every rank is taken to hold what this one holds: Average gives the tensor itself, Sum a multiple of it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from horovod import _native as native
from horovod.common.basics import basics
from horovod.common.membership import Membership
from horovod.common.process_sets import global_process_set
from horovod.torch import submission
from horovod.torch.tensors import NATIVE_DTYPES

DTYPES = {number: dtype for dtype, number in NATIVE_DTYPES.items()}


@dataclass
class Tensor:
    source: int
    destination: int
    shape: list[int]
    dtype: int
    feedback: Any = None
    device: int = -1
    stream: int = 0

    def values(self) -> torch.Tensor:
        dtype = DTYPES[self.dtype]
        count = torch.Size(self.shape).numel()
        buffer = bytearray(ctypes.string_at(self.source, count * dtype.itemsize)) if count else bytearray()
        return torch.frombuffer(buffer, dtype=dtype).reshape(self.shape) if count else torch.empty(self.shape)


@dataclass
class Reduction:
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    codec: Any = None


@dataclass
class Request:
    """One call of the engine, in the order of calls."""

    operation: str
    name: str
    tensors: list[Tensor]
    reduction: Reduction | None = None
    root: int | None = None
    waited: bool = False

    @property
    def codec(self) -> str | None:
        return self.reduction.codec.name if self.reduction and self.reduction.codec else None


@dataclass
class FakeEngine:
    """Completes an operation when it is waited for; if ``polls_are_done``, already when it is looked at."""

    size: int
    requests: list[Request] = field(default_factory=list)
    failures: dict[str, Exception] = field(default_factory=dict)  # by name, raised by wait()
    polls_are_done: bool = False

    def _add(self, request: Request) -> int:
        if any(other.name == request.name and not other.waited for other in self.requests):
            raise ValueError(f"'{request.name}' is in flight")
        self.requests.append(request)
        return len(self.requests) - 1

    def allreduce(self, name: str, tensors: list[Tensor], reduction: Reduction, process_set: int = 0) -> int:
        return self._add(Request("allreduce", name, tensors, reduction))

    def allgather(self, name: str, tensors: list[Tensor], process_set: int = 0) -> int:
        return self._add(Request("allgather", name, tensors))

    def broadcast(self, name: str, tensor: Tensor, root: int, process_set: int = 0) -> int:
        return self._add(Request("broadcast", name, [tensor], root=root))

    def barrier(self, name: str, process_set: int = 0) -> int:
        return self._add(Request("barrier", name, []))

    def poll(self, handle: int) -> bool:
        return self.requests[handle].waited or self.polls_are_done

    has_result = poll

    has_failed = False

    def wait(self, handle: int) -> Any:
        request = self.requests[handle]
        request.waited = True
        if request.name in self.failures:
            raise self.failures[request.name]
        for tensor in request.tensors:
            if tensor.destination:
                times = self.size if request.reduction and request.reduction.op == 1 else 1
                values = (tensor.values() * times).contiguous()
                ctypes.memmove(tensor.destination, values.data_ptr(), values.numel() * values.itemsize)
        if request.operation != "allgather":
            return SimpleNamespace(sizes=[])
        rows = torch.cat([request.tensors[0].values()] * self.size)
        contents = rows.reshape(-1).view(torch.uint8)
        return SimpleNamespace(
            sizes=[request.tensors[0].shape[0]] * self.size, nbytes=contents.numel(), buffer=lambda: contents
        )

    def shutdown(self) -> None:
        pass

    def names(self) -> list[str]:
        return [request.name for request in self.requests]


@contextmanager
def imagined_job(size: int, rank: int = 0) -> Iterator[FakeEngine]:
    """Inside the block, this process is rank `rank` of a job of `size`, whose engine is a FakeEngine."""
    engine = FakeEngine(size)
    world: Any = SimpleNamespace(rank=rank, size=size, homogeneous=True)
    fakes = mock.patch.multiple(native, Tensor=Tensor, Reduction=Reduction)
    member = mock.patch.object(basics, "_member", Membership(world, engine))  # type: ignore[arg-type]
    submission.reduction_of.cache_clear()
    global_process_set._place(0, rank, list(range(size)))
    try:
        with fakes, member:
            yield engine
    finally:
        global_process_set._place(0, None, None)
        submission.reduction_of.cache_clear()
