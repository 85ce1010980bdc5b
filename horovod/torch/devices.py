"""GPUs as the rest of this folder sees them: where a tensor is, and on which stream it is worked with.

A GPU does later what a caller has put on a stream, and nothing here waits for it. An operation lives on the
stream that was the caller's current one when it was started, its `Origin`: the core begins after what had
been put there, and what becomes of the result is put there after the core's own work. `synchronize` has the
caller's stream of that moment wait for the origin's.

So tensors need to be kept until `synchronize` only. torch's allocator gives a freed block to later work on
the stream it was allocated on: on the origin, that is work behind the core's. Where the caller goes on on
another stream, the allocator is told so of the outputs (`hand_over`); tensors that the caller itself brought
from another stream are the caller's to mark (Tensor.record_stream), as for any other work of torch.

Tests replace these functions to have tensors in host memory count as those of an emulated GPU.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch

from horovod import _native as native
from horovod.torch import errors

__all__ = [
    "CPU", "Origin", "check_reached", "common_device", "copy_out", "current_stream", "device_of",
    "done_future", "follow", "new_future", "new_stream", "order", "torch_device", "torch_stream",
]

CPU = -1


def device_of(tensor: torch.Tensor) -> int:
    """The GPU that a tensor is on, by its number in this process; CPU for host memory."""
    return tensor.get_device() if tensor.is_cuda else CPU


def check_reached(tensor: torch.Tensor, operation: str) -> None:
    """ValueError for a tensor that is where the core cannot reach it."""
    device = str(tensor.device)
    if tensor.device.type not in ("cpu", "cuda"):
        raise errors.wrong_place(tensor=operation, device=device)
    if tensor.is_cuda and torch.version.hip is not None:
        raise errors.rocm(tensor=operation, device=device)
    if device_of(tensor) != CPU and not native.device_library_is_installed():
        raise errors.built_without_cuda(tensor=operation, device=device)


def common_device(tensors: Sequence[torch.Tensor], operation: str) -> int:
    """The device of all of an operation's tensors; ValueError if they have not one in common."""
    devices = {device_of(tensor) for tensor in tensors}
    if len(devices) > 1:
        names = sorted({str(tensor.device) for tensor in tensors})
        raise errors.several_devices(tensor=operation, devices=names)
    return devices.pop() if devices else CPU


def current_stream(device: int) -> int:
    """The cudaStream_t on which this thread works with a GPU. RuntimeError while it captures a graph."""
    if device == CPU:
        return 0
    if torch.cuda.is_current_stream_capturing():
        raise errors.captured()
    return int(torch.cuda.current_stream(device).cuda_stream)


def follow(device: int, streams: Iterable[int]) -> None:
    """Have the current stream of a GPU go on after what is on others by now: cudaStream_t, also the current
    one.
    """
    current = torch.cuda.current_stream(device)
    for stream in streams:
        if stream != current.cuda_stream:
            other = torch.cuda.ExternalStream(stream, device=device)  # type: ignore[no-untyped-call]
            current.wait_stream(other)


def order(result: native.Result, device: int) -> None:
    """Have the current stream go on after a result: host memory is there when the engine has said so."""
    if device != CPU:
        result.order(current_stream(device))


def copy_out(result: native.Result, offset: int, output: torch.Tensor) -> None:
    """Copy what the core received, from a byte on, into a tensor on the GPU; the current stream does it."""
    result.copy_to(offset, output.data_ptr(), output.nbytes, current_stream(device_of(output)))


def torch_stream(device: int) -> torch.cuda.Stream | None:
    """The current stream as torch has it."""
    return None if device == CPU else torch.cuda.current_stream(device)


def torch_device(device: int) -> torch.device:
    """The device of a number that device_of() has given."""
    return torch.device("cpu") if device == CPU else torch.device("cuda", device)


def new_stream(device: int) -> torch.cuda.Stream | None:
    """One that nobody else uses."""
    return None if device == CPU else torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def new_future(device: int) -> torch.futures.Future[None]:
    """A future. On a GPU whoever waits for it goes on behind what is on the stream where it is completed."""
    return torch.futures.Future() if device == CPU else torch.futures.Future(devices=[torch_device(device)])


def done_future(device: int) -> torch.futures.Future[None]:
    """One that is done."""
    future = new_future(device)
    future.set_result(None)
    return future


@dataclass(frozen=True)
class Origin:
    """The origin of an operation: a device, and the stream that was current."""

    device: int = CPU
    stream: torch.cuda.Stream | None = None

    @classmethod
    def here(cls, device: int) -> Origin:
        return cls(device, torch_stream(device))

    @classmethod
    def beside(cls, device: int) -> Origin:
        """One on a stream of its own."""
        return cls(device, new_stream(device))

    def wait_for_caller(self) -> None:
        """Work put on the stream from now on comes after the work on the caller's."""
        caller = torch_stream(self.device) if self.stream is not None else None
        if caller is not None and self.stream is not None:
            self.stream.wait_stream(caller)

    def synchronize(self) -> None:
        """Wait until the GPU has done what is on the stream."""
        if self.stream is not None:
            self.stream.synchronize()

    @contextlib.contextmanager
    def resumed(self) -> Iterator[None]:
        """Inside the block torch works on that stream."""
        if self.stream is None:
            yield
            return
        with torch.cuda.stream(self.stream):
            yield

    def hand_over(self, tensors: Sequence[torch.Tensor]) -> None:
        """The caller goes on, on its stream, with what was computed and allocated on this one."""
        caller = torch_stream(self.device) if self.stream is not None else None
        if caller is not None and self.stream is not None and caller != self.stream:
            caller.wait_stream(self.stream)
            for tensor in tensors:
                tensor.record_stream(caller)
