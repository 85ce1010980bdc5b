"""Make tensors in host memory count as an emulated GPU's, so that horovod.torch takes its paths for GPUs.

The library is the one that test/emulated_cuda builds. The memory of an emulated GPU is host memory, and torch
computes with it at once, whatever work its streams still have. If torch would queue work behind the core's on
a stream, the host waits here for that stream.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

from horovod import _native as native
from horovod.torch import devices

__all__ = ["EmulatedGpu", "asked_for"]


class EmulatedGpu:
    """One GPU for a process. ``index``: its number among the emulated GPUs, which all processes see."""

    def __init__(self, library: str, index: int) -> None:
        native.use_device_library(library)
        self._cuda = ctypes.CDLL(str(Path(library).with_name("libcudart_emulated.so")))
        self.index = index
        self.stream = 0
        self._counts = True

    def install(self) -> None:
        """From now on count every CPU tensor as one of this GPU."""
        devices.device_of = lambda tensor: self.index if self._counts else devices.CPU
        devices.current_stream = lambda device: self.stream
        devices.torch_stream = lambda device: None
        devices.follow = self._follow
        devices.order = self._order
        devices.copy_out = self._copy_out
        devices.new_stream = lambda device: None
        devices.torch_device = lambda device: torch.device("cpu")
        devices.new_future = lambda device: torch.futures.Future()

    def _follow(self, device: int, streams: Iterable[int]) -> None:
        for stream in streams:
            event = ctypes.c_void_p()
            self._check(self._cuda.cudaSetDevice(device), "cudaSetDevice")
            self._check(self._cuda.cudaEventCreateWithFlags(ctypes.byref(event), 0), "cudaEventCreate")
            self._check(self._cuda.cudaEventRecord(event, ctypes.c_void_p(stream)), "cudaEventRecord")
            current = ctypes.c_void_p(self.stream)
            self._check(self._cuda.cudaStreamWaitEvent(current, event, 0), "cudaStreamWaitEvent")
            self._check(self._cuda.cudaEventDestroy(event), "cudaEventDestroy")

    def _order(self, result: native.Result, device: int) -> None:
        if device != devices.CPU:
            result.order(self.stream)
            self.wait_for(self.stream)

    def _copy_out(self, result: native.Result, offset: int, output: torch.Tensor) -> None:
        result.copy_to(offset, output.data_ptr(), output.nbytes, self.stream)
        self.wait_for(self.stream)

    @contextlib.contextmanager
    def on_cpu(self) -> Iterator[None]:
        """Inside the block count tensors as CPU tensors."""
        self._counts = False
        try:
            yield
        finally:
            self._counts = True

    # ---- streams, as a program for CUDA has them ----

    def _check(self, code: int, call: str) -> None:
        assert code == 0, f"{call} gave {code}"

    def wait_for(self, stream: int) -> None:
        self._check(self._cuda.cudaSetDevice(self.index), "cudaSetDevice")
        self._check(self._cuda.cudaStreamSynchronize(ctypes.c_void_p(stream)), "cudaStreamSynchronize")

    def new_stream(self) -> int:
        stream = ctypes.c_void_p()
        self._check(self._cuda.cudaSetDevice(self.index), "cudaSetDevice")
        non_blocking = 1
        code = self._cuda.cudaStreamCreateWithFlags(ctypes.byref(stream), non_blocking)
        self._check(code, "cudaStreamCreateWithFlags")
        assert stream.value is not None
        return stream.value

    def copy_on(self, stream: int, to: torch.Tensor, source: torch.Tensor) -> None:
        """Make a copy when the stream reaches it."""
        device_to_device = 3
        addresses = (ctypes.c_void_p(to.data_ptr()), ctypes.c_void_p(source.data_ptr()))
        size, where = ctypes.c_size_t(to.nbytes), ctypes.c_void_p(stream)
        code = self._cuda.cudaMemcpyAsync(*addresses, size, device_to_device, where)
        self._check(code, "cudaMemcpyAsync")


def asked_for(local_rank: int) -> EmulatedGpu | None:
    """Return the GPU that this rank's environment requests, or None.

    HOROVOD_TEST_EMULATED_GPU is the library. With HOROVOD_TEST_SHARED_GPU all ranks of the host use one GPU.
    """
    library = os.environ.get("HOROVOD_TEST_EMULATED_GPU")
    if library is None:
        return None
    return EmulatedGpu(library, 0 if "HOROVOD_TEST_SHARED_GPU" in os.environ else local_rank)
