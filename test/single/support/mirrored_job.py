"""A job whose other ranks repeat this rank's calls with the same values, and which records all requests.

The engines are real and are threads of this process. An Average therefore gives the tensor itself, up to the
codec's error, and a Sum gives a multiple of it, without a second copy of the test's program.
"""

# private: _assign: the global process set gets the ranks of a job that is not started

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch

from horovod import _native as native
from horovod.common import jobs
from horovod.common.membership import Membership
from horovod.common.process_sets import global_process_set
from horovod.torch import submission
from horovod.torch.tensors import NATIVE_DTYPES

DTYPES = {number: dtype for dtype, number in NATIVE_DTYPES.items()}
_native_tensor, _native_reduction = native.Tensor, native.Reduction


@dataclass
class Tensor:
    """A tensor as Python passes it to the core, with readable fields."""

    source: int
    destination: int
    shape: list[int]
    dtype: int
    feedback: Any = None
    device: int = -1
    stream: int = 0
    witness: int = 0

    def values(self) -> torch.Tensor:
        dtype = DTYPES[self.dtype]
        count = torch.Size(self.shape).numel()
        buffer = bytearray(ctypes.string_at(self.source, count * dtype.itemsize)) if count else bytearray()
        return torch.frombuffer(buffer, dtype=dtype).reshape(self.shape) if count else torch.empty(self.shape)

    def for_core(self) -> native.Tensor:
        own = (self.source, self.destination, self.shape, self.dtype)
        return _native_tensor(*own, self.feedback, self.device, self.stream, self.witness)

    def for_mirror(self, copy: torch.Tensor) -> native.Tensor:
        address = copy.data_ptr()
        return _native_tensor(address, address if self.destination else 0, self.shape, self.dtype)


@dataclass
class Reduction:
    op: int = 1
    prescale: float = 1.0
    postscale: float = 1.0
    codec: Any = None

    def for_core(self) -> native.Reduction:
        return _native_reduction(self.op, self.prescale, self.postscale, self.codec)


@dataclass
class Request:
    """One call of the engine."""

    operation: str
    name: str
    tensors: list[Tensor]
    reduction: Reduction | None = None
    root: int | None = None
    waited: bool = False
    handles: list[int] = field(default_factory=list)  # by rank
    copies: list[torch.Tensor] = field(default_factory=list)  # the other ranks' tensors, while in flight

    @property
    def codec(self) -> str | None:
        return self.reduction.codec.name if self.reduction and self.reduction.codec else None


class MirroredEngine:
    """Rank ``rank``'s engine; ``engines`` are all ranks'.

    Attributes:
        requests: all requests, in order.
        questions: the missing gradients of each question; all ranks lack the same.
        failures: by name, the error that wait() raises; such requests do not reach the core.
    """

    def __init__(self, engines: list[native.Engine], rank: int) -> None:
        self.size = len(engines)
        self.requests: list[Request] = []
        self.questions: list[list[str]] = []
        self.failures: dict[str, Exception] = {}
        self._answers: list[native.Result] = []
        self._engines, self._rank = engines, rank

    def _ask(self, request: Request, *more: Any) -> int:
        if request.name not in self.failures:
            ranks = [self._rank, *(rank for rank in range(self.size) if rank != self._rank)]
            handles = {rank: self._ask_of(rank, request, more) for rank in ranks}
            request.handles = [handles[rank] for rank in range(self.size)]
        self.requests.append(request)
        return len(self.requests) - 1

    def _ask_of(self, rank: int, request: Request, more: tuple[Any, ...]) -> int:
        tensors = [tensor.for_core() for tensor in request.tensors]
        if rank != self._rank:
            copies = [tensor.values() for tensor in request.tensors]
            request.copies += copies
            both = zip(request.tensors, copies, strict=True)
            tensors = [tensor.for_mirror(copy) for tensor, copy in both]
        call = getattr(self._engines[rank], request.operation)
        if request.operation == "barrier":
            return int(call(request.name, *more))
        return int(call(request.name, tensors[0] if request.operation == "broadcast" else tensors, *more))

    def allreduce(
        self,
        name: str,
        tensors: list[Tensor],
        reduction: Reduction,
        process_set: int = 0,
        follows: bool = False,
    ) -> int:
        request = Request("allreduce", name, tensors, reduction)
        return self._ask(request, reduction.for_core(), process_set, follows)

    def allgather(self, name: str, tensors: list[Tensor], process_set: int = 0) -> int:
        return self._ask(Request("allgather", name, tensors), process_set)

    def broadcast(self, name: str, tensor: Tensor, root: int, process_set: int = 0) -> int:
        return self._ask(Request("broadcast", name, [tensor], root=root), root, process_set)

    def barrier(self, name: str, process_set: int = 0) -> int:
        return self._ask(Request("barrier", name, []), process_set)

    def missing(
        self,
        name: str,
        gradients: list[str],
        has_part: list[bool],
        process_set: int = 0,
        ends: bool = False,
        anchor: str = "",
    ) -> int:
        """Answer at once, as all ranks ask the same. Handles of questions are negative."""
        asked = [
            engine.missing(f"{name}/{rank}", gradients, has_part, process_set, ends, anchor)
            for rank, engine in enumerate(self._engines)
        ]
        self._answers.append(
            [engine.wait(handle) for engine, handle in zip(self._engines, asked, strict=True)][self._rank]
        )
        self.questions.append(gradients)
        return -len(self._answers)

    def hold(self) -> None:
        for engine in self._engines:
            engine.hold()

    def let_go(self) -> None:
        for engine in self._engines:
            engine.let_go()

    def note_pass(self, is_in_pass: bool) -> None:
        for engine in self._engines:
            engine.note_pass(is_in_pass)

    def poll(self, handle: int) -> bool:
        request = self.requests[handle]
        return request.waited or not request.handles or self._own.poll(request.handles[self._rank])

    def has_result(self, handle: int) -> bool:
        if handle < 0:
            return True
        request = self.requests[handle]
        return request.waited or not request.handles or self._own.has_result(request.handles[self._rank])

    def wait_or_yield(self, handle: int) -> bool:
        if handle < 0:
            return True
        handles = self.requests[handle].handles
        return not handles or self._own.wait_or_yield(handles[self._rank])

    def must_yield(self, handle: int) -> bool:
        return False

    def note_blocked(self, handle: int, may_yield: bool) -> None:
        """Does nothing: these ranks cannot deadlock."""

    def wait(self, handle: int) -> Any:
        if handle < 0:
            return self._answers[-handle - 1]
        request = self.requests[handle]
        request.waited = True
        if request.name in self.failures:
            raise self.failures[request.name]
        results = [engine.wait(number) for engine, number in zip(self._engines, request.handles, strict=True)]
        request.copies.clear()
        return results[self._rank]

    @property
    def _own(self) -> native.Engine:
        return self._engines[self._rank]

    @property
    def has_failed(self) -> bool:
        return self._own.has_failed

    def memory(self, nbytes: int) -> Any:
        return self._own.memory(nbytes)

    def cpu_microseconds(self) -> int:
        return self._own.cpu_microseconds()

    def counters(self, process_set: int) -> dict[str, int]:
        return self._own.counters(process_set)

    def shutdown(self) -> None:
        for engine in self._engines:
            engine.shutdown()

    def of_gradients(self) -> list[Request]:
        """All requests except the check that ranks use the same suffix for an optimizer's names."""
        return [one for one in self.requests if not one.name.endswith("DistributedOptimizer.names")]

    def names(self) -> list[str]:
        return [request.name for request in self.requests]


@contextmanager
def mirrored_job(size: int, rank: int = 0) -> Iterator[MirroredEngine]:
    """Make this thread rank `rank` of a job of `size` ranks, whose other ranks repeat its calls."""
    worlds = native.local_worlds(size)
    engine = MirroredEngine([native.Engine(world, native.Settings()) for world in worlds], rank)
    fakes = mock.patch.multiple(native, Tensor=Tensor, Reduction=Reduction)
    job = jobs.Job()
    job.member = Membership(worlds[rank], engine, native.Settings())  # type: ignore[arg-type]
    submission.reduction_of.cache_clear()
    try:
        with fakes, job.entered():
            global_process_set._assign(0, rank, list(range(size)))
            yield engine
    finally:
        engine.shutdown()
        submission.reduction_of.cache_clear()
