"""GPUs for the rest of this folder: the device of a tensor, and the stream that works on it.

A GPU executes later what a caller enqueues on a stream, and nothing here waits for it. An operation belongs
to the stream that was current when it started, its `Origin`. The core begins after the work on that stream,
and the processing of the result is enqueued there after the core's work. `synchronize` makes the caller's
current stream wait for the origin.

So tensors must be kept alive until `synchronize` only. torch's allocator gives a freed block to later work on
the stream on which it was allocated, which on the origin comes after the core's. If the caller continues on
another stream, `hand_over` reports the outputs to the allocator. Tensors that the caller brought from another
stream are the caller's to mark (Tensor.record_stream), as for any work of torch.

Tests replace these functions to use tensors in host memory as tensors of an emulated GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from horovod import _native as native
from horovod.torch import errors

CPU = -1
_NO_STREAM = contextlib.nullcontext()


def device_of(tensor: torch.Tensor) -> int:
    """Return the number of a tensor's GPU in this process; CPU for host memory."""
    return tensor.get_device() if tensor.is_cuda else CPU


def check_reached(tensor: torch.Tensor, operation: str) -> None:
    """Raise ValueError if the core cannot reach the tensor's memory."""
    if not (tensor.is_cpu or tensor.is_cuda):
        raise errors.wrong_place(tensor=operation, device=str(tensor.device))
    if tensor.is_cuda and torch.version.hip is not None:
        raise errors.rocm(tensor=operation, device=str(tensor.device))
    if device_of(tensor) != CPU and not native.device_library_is_installed():
        raise errors.built_without_cuda(tensor=operation, device=str(tensor.device))


def common_device(tensors: Sequence[torch.Tensor], operation: str) -> int:
    """Return the device of all tensors of an operation. ValueError if they are on several."""
    devices = {device_of(tensor) for tensor in tensors}
    if len(devices) > 1:
        names = sorted({str(tensor.device) for tensor in tensors})
        raise errors.several_devices(tensor=operation, devices=names)
    return devices.pop() if devices else CPU


def current_stream(device: int) -> int:
    """Return this thread's current cudaStream_t of a GPU. RuntimeError while it captures a graph."""
    if device == CPU:
        return 0
    if torch.cuda.is_current_stream_capturing():
        raise errors.captured()
    return int(torch.cuda.current_stream(device).cuda_stream)


def follow(device: int, streams: Iterable[int]) -> None:
    """Make the GPU's current stream wait for the work that is on ``streams`` now.

    ``streams`` are cudaStream_t, and may include the current stream.
    """
    current = torch.cuda.current_stream(device)
    for stream in streams:
        if stream != current.cuda_stream:
            other = torch.cuda.ExternalStream(stream, device=device)  # type: ignore[no-untyped-call]
            current.wait_stream(other)


def order(result: native.Result, device: int) -> None:
    """Make the current stream wait for a result. In host memory, a result is complete already."""
    if device != CPU:
        result.order(current_stream(device))


def copy_out(result: native.Result, offset: int, output: torch.Tensor) -> None:
    """Copy what the core received, from byte ``offset`` on, into a GPU tensor, on the current stream."""
    result.copy_to(offset, output.data_ptr(), output.nbytes, current_stream(device_of(output)))


def torch_stream(device: int) -> torch.cuda.Stream | None:
    """Return the current stream as a torch object; None for host memory."""
    return None if device == CPU else torch.cuda.current_stream(device)


def torch_device(device: int) -> torch.device:
    return torch.device("cpu") if device == CPU else torch.device("cuda", device)


def new_stream(device: int) -> torch.cuda.Stream | None:
    """Return a new stream; None for host memory."""
    return None if device == CPU else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def new_future(device: int) -> torch.futures.Future[None]:
    """Return a future. On a GPU, a waiting stream continues after the stream that completed it."""
    return torch.futures.Future() if device == CPU else torch.futures.Future(devices=[torch_device(device)])


@dataclass(frozen=True)
class Origin:
    """The origin of an operation: a device, and the stream that was current."""

    device: int = CPU
    stream: torch.cuda.Stream | None = None

    @classmethod
    def here(cls, device: int) -> Origin:
        return HOST if device == CPU else cls(device, torch_stream(device))

    @classmethod
    def beside(cls, device: int) -> Origin:
        """Return an origin on a new stream."""
        return cls(device, new_stream(device))

    def wait_for_caller(self) -> None:
        """Make later work on this stream wait for the present work on the caller's stream."""
        caller = torch_stream(self.device)
        if caller is not None and self.stream is not None:
            self.stream.wait_stream(caller)

    def resumed(self) -> contextlib.AbstractContextManager[object]:
        """Return a context in which torch works on that stream."""
        return _NO_STREAM if self.stream is None else torch.cuda.stream(self.stream)

    def hand_over(self, tensors: Sequence[torch.Tensor]) -> None:
        """Make the caller's stream wait for this one, and keep ``tensors`` until it has used them."""
        caller = torch_stream(self.device)
        if caller is not None and self.stream is not None and caller != self.stream:
            caller.wait_stream(self.stream)
            for tensor in tensors:
                tensor.record_stream(caller)


HOST = Origin()
