"""Emulated GPUs (test/emulated_cuda), made of threads and memory of this process: arrays, streams, tensors.

The import builds the emulation if necessary and makes the core use it.
"""

from __future__ import annotations

import ctypes
import gc
import itertools
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ranks import NUMBERS, predictable, tensor

from horovod import _native

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "emulated_cuda"))

import build as emulation

LIBRARY = emulation.library_path()
os.environ.setdefault("HOROVOD_NCCL_LIBRARY", str(emulation.nccl_path()))
_native.use_device_library(str(LIBRARY))

_cuda = ctypes.CDLL(str(emulation.runtime_path()))
_trials = ctypes.CDLL(str(emulation.trials_path()))
_TO_ANYWHERE = 4  # cudaMemcpyDefault
_NON_BLOCKING = 1
_NOT_READY = 600  # cudaErrorNotReady


def call(function: str, *arguments: Any) -> None:
    """Call a function of the CUDA runtime; raise AssertionError if it fails."""
    result = getattr(_cuda, function)(*arguments)
    assert result == 0, f"{function}: error {result}"


def last_error() -> str:
    """The name of this thread's last CUDA runtime error."""
    _cuda.cudaGetErrorName.restype = ctypes.c_char_p
    return str(_cuda.cudaGetErrorName(_cuda.cudaPeekAtLastError()).decode())


def pinned_bytes() -> int:
    """Bytes of pinned host memory that the process has allocated."""
    _cuda.emulatedCudaPinnedBytes.restype = ctypes.c_size_t
    return int(_cuda.emulatedCudaPinnedBytes())


@contextmanager
def on_gpu(gpu: int) -> Iterator[None]:
    """Make a GPU the thread's current device."""
    before = ctypes.c_int()
    call("cudaGetDevice", ctypes.byref(before))
    call("cudaSetDevice", ctypes.c_int(gpu))
    try:
        yield
    finally:
        call("cudaSetDevice", before)


def _destroy_stream(gpu: int, number: int) -> None:
    with on_gpu(gpu):
        call("cudaStreamDestroy", ctypes.c_void_p(number))


class Stream:
    """A stream of one GPU that waits for no other stream."""

    def __init__(self, gpu: int = 0) -> None:
        self.gpu = gpu
        handle = ctypes.c_void_p()
        with on_gpu(gpu):
            call("cudaStreamCreateWithFlags", ctypes.byref(handle), ctypes.c_uint(_NON_BLOCKING))
        self.number = handle.value or 0
        # Each stream is a thread, which finishes its work before it ends.
        weakref.finalize(self, _destroy_stream, gpu, self.number).atexit = False

    def synchronize(self) -> None:
        with on_gpu(self.gpu):
            call("cudaStreamSynchronize", ctypes.c_void_p(self.number))

    def is_idle(self) -> bool:
        with on_gpu(self.gpu):
            result = _cuda.cudaStreamQuery(ctypes.c_void_p(self.number))
        assert result in (0, _NOT_READY), f"cudaStreamQuery: error {result}"
        return bool(result == 0)


class GpuArray:
    """An array in the memory of a GPU, and its owner's stream."""

    def __init__(self, values: NDArray[Any], stream: Stream) -> None:
        self.stream = stream
        self.shape, self.dtype = values.shape, values.dtype
        self.nbytes = values.nbytes
        memory = ctypes.c_void_p()
        with on_gpu(stream.gpu):
            call("cudaMalloc", ctypes.byref(memory), ctypes.c_size_t(max(self.nbytes, 1)))
        self.address = memory.value or 0
        weakref.finalize(self, _cuda.cudaFree, ctypes.c_void_p(self.address))
        self.set(values)

    def set(self, values: NDArray[Any]) -> None:
        """Copy values in, on the stream."""
        flat = np.ascontiguousarray(values)
        assert (flat.nbytes, flat.dtype) == (self.nbytes, self.dtype)
        self._copy(self.address, flat.ctypes.data)

    def numpy(self) -> NDArray[Any]:
        """A copy of the values, ordered on the stream."""
        values = np.empty(self.shape, self.dtype)
        self._copy(values.ctypes.data, self.address)
        return values

    def _copy(self, to: int, source: int) -> None:
        if self.nbytes == 0:
            return
        with on_gpu(self.stream.gpu):
            size, kind = ctypes.c_size_t(self.nbytes), ctypes.c_int(_TO_ANYWHERE)
            stream = ctypes.c_void_p(self.stream.number)
            call("cudaMemcpyAsync", ctypes.c_void_p(to), ctypes.c_void_p(source), size, kind, stream)
        self.stream.synchronize()  # the host memory is not pinned and may be freed


class _Collector:
    """Stops Python's garbage collector while a gate is closed: freeing an array would block."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._closed = 0

    def stop(self) -> None:
        with self._lock:
            self._closed += 1
            if self._closed == 1:
                gc.disable()
                while not self._collect():
                    time.sleep(0.001)

    def _collect(self) -> bool:
        """Collect; False if another thread is collecting, as gc.collect() then returns at once."""
        own = threading.get_ident()
        ended: list[str] = []

        def note(phase: str, info: object) -> None:
            if phase == "stop" and threading.get_ident() == own:
                ended.append(phase)

        gc.callbacks.append(note)
        try:
            gc.collect()
        finally:
            gc.callbacks.remove(note)
        return bool(ended)

    def go_on(self) -> None:
        with self._lock:
            self._closed -= 1
            if self._closed == 0:
                gc.enable()


_collector = _Collector()


class Gate:
    """A kernel on a stream that adds to an array once the gate is opened."""

    def __init__(self, x: GpuArray, add: float = 0.0) -> None:
        assert x.dtype == np.float32
        _collector.stop()
        self._is_closed = True
        flag = ctypes.c_void_p()
        with on_gpu(x.stream.gpu):
            call("cudaHostAlloc", ctypes.byref(flag), ctypes.c_size_t(4), ctypes.c_uint(1))
            self._flag = ctypes.c_int.from_address(flag.value or 0)
            self._flag.value = 0
            where, stream = ctypes.c_void_p(x.address), ctypes.c_void_p(x.stream.number)
            count = ctypes.c_int(x.nbytes // 4)
            _trials.trial_add_when_raised(where, count, ctypes.c_float(add), flag, stream)

    def open(self) -> None:
        self._flag.value = 1
        if self._is_closed:
            self._is_closed = False
            _collector.go_on()


def over(transport: str, algorithm: str = "auto") -> _native.Settings:
    """Settings of ranks as threads: the carrier of GPU tensors, and the allreduce algorithm."""
    settings = predictable(algorithm)
    settings.gpu_transport = transport
    return settings


def array(values: NDArray[Any], gpu: int = 0) -> GpuArray:
    """Values in the memory of a GPU, with their own stream."""
    return GpuArray(values, Stream(gpu))


def gpu_tensor(
    source: GpuArray, destination: GpuArray | None = None, feedback: _native.Feedback | None = None
) -> _native.Tensor:
    """The core's view of an array; without a destination the operation is in place."""
    out = source if destination is None else destination
    return _tensor(source, out.address, feedback)


def gpu_source(x: GpuArray) -> _native.Tensor:
    """The core's view of an array for an operation whose result the core allocates."""
    return _tensor(x, 0, None)


def _tensor(x: GpuArray, destination: int, feedback: _native.Feedback | None) -> _native.Tensor:
    gpu, stream = x.stream.gpu, x.stream.number
    return _native.Tensor(
        x.address, destination, list(x.shape), NUMBERS[x.dtype], feedback, device=gpu, stream=stream
    )


def gpu_submit(engine: _native.Engine, name: str, x: GpuArray, process_set: int = 0, **reduction: Any) -> int:
    """Start an allreduce in place; return its handle."""
    return engine.allreduce(name, [gpu_tensor(x)], _native.Reduction(**reduction), process_set)


def gpu_values(engine: _native.Engine, handle: int, x: GpuArray) -> NDArray[Any]:
    """Wait for an operation and return the array's values, as its owner's stream sees them."""
    engine.wait(handle).order(x.stream.number)
    return x.numpy()


def gpu_allreduce(
    engine: _native.Engine,
    name: str,
    values: NDArray[Any],
    gpu: int = 0,
    process_set: int = 0,
    **reduction: Any,
) -> NDArray[Any]:
    """A blocking out-of-place allreduce of values copied to a GPU."""
    x = array(values, gpu)
    out = GpuArray(np.empty_like(values), x.stream)
    handle = engine.allreduce(name, [gpu_tensor(x, out)], _native.Reduction(**reduction), process_set)
    return gpu_values(engine, handle, out)


def group_allreduce(
    engine: _native.Engine,
    xs: list[NDArray[Any]],
    gpu: int | None,
    codec: str = "",
    feedback: Sequence[_native.Feedback | None] = (),
    process_set: int = 0,
    **reduction: Any,
) -> list[NDArray[Any]]:
    """One group's allreduce in place, on a GPU, or on the CPU if `gpu` is None.

    The name is always the same, as random numbers depend on it.
    """
    how = _native.Reduction(codec=_native.codec_named(codec) if codec else None, **reduction)
    kept = feedback or [None] * len(xs)
    if gpu is None:
        xs = [x.copy() for x in xs]
        tensors = [tensor(x, None, keep) for x, keep in zip(xs, kept, strict=True)]
        engine.wait(engine.allreduce("group", tensors, how, process_set))
        return xs
    stream = Stream(gpu)
    there = [GpuArray(x, stream) for x in xs]
    tensors = [gpu_tensor(x, None, keep) for x, keep in zip(there, kept, strict=True)]
    engine.wait(engine.allreduce("group", tensors, how, process_set)).order(stream.number)
    return [x.numpy() for x in there]


def gpu_received(result: _native.Result, like: GpuArray) -> NDArray[Any]:
    """The result that the core allocated, as rows with the dtype and width of `like`."""
    rows = sum(result.sizes)
    out = GpuArray(np.empty((rows, *like.shape[1:]), like.dtype), like.stream)
    result.copy_to(0, out.address, out.nbytes, out.stream.number)
    return out.numpy()


class GpuMemory:
    """A GPU's memory for random programs (programs.py): tensors alternate between two streams."""

    def __init__(self, gpu: int) -> None:
        self.streams = itertools.cycle([Stream(gpu), Stream(gpu)])

    def put(self, values: NDArray[Any]) -> GpuArray:
        return GpuArray(values, next(self.streams))

    def view(self, source: GpuArray, destination: GpuArray | None = None) -> _native.Tensor:
        return gpu_source(source) if destination is None else gpu_tensor(source, destination)

    def values(self, result: _native.Result, x: GpuArray) -> NDArray[Any]:
        result.order(x.stream.number)
        return x.numpy()

    def received(self, result: _native.Result) -> bytes:
        out = self.put(np.empty(result.nbytes, np.uint8))
        result.copy_to(0, out.address, out.nbytes, out.stream.number)
        return out.numpy().tobytes()
