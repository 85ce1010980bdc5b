"""The device library over the emulated CUDA, through C functions (trials/): GPUs, streams, memory, NCCL."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import build


class DeviceError(Exception):
    """An error of the core: its class, code and facts, as text."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.kind, self.code, *facts = text.split("\n")
        self.facts = dict(fact.partition("=")[::2] for fact in facts if "=" in fact)


@contextmanager
def refused_there(kind: str, code: str, **facts: str) -> Iterator[None]:
    """Check that the block makes the core throw this error."""
    with pytest.raises(DeviceError) as caught:
        yield
    error = caught.value
    assert (error.kind, error.code) == (kind, code), error
    assert {name: error.facts.get(name) for name in facts} == facts, error


class Transfer(ctypes.Structure):
    """The struct DeviceTransfer of device/communicator.h."""

    _fields_ = (("peer", c_int), ("data", c_void_p), ("bytes", c_size_t))


ERRORS = (
    *(
        "device_use",
        "device_count",
        "device_describe",
        "device_reaches",
        "device_make_stream",
        "device_record",
    ),
    *("device_wait", "device_is_done", "device_synchronize", "device_milliseconds", "device_allocate"),
    *("device_pin", "device_copy", "device_fill", "nccl_make_id", "nccl_make", "nccl_allreduce"),
    *("nccl_broadcast", "nccl_exchange", "kernels_encode", "kernels_decode", "kernels_reduce"),
    *("kernels_pack", "kernels_unpack", "kernels_take_saturated"),
)


@lru_cache(maxsize=1)
def trials() -> ctypes.CDLL:
    """Load the functions, over libhorovod_cuda_emulated.so."""
    library = ctypes.CDLL(str(build.trials_path()))
    for name in (*ERRORS, "nccl_why_none", "nccl_failure"):
        getattr(library, name).restype = c_char_p
    check(library.device_use(str(build.library_path()).encode()))
    return library


def check(error: bytes | None) -> None:
    if error is not None:
        raise DeviceError(error.decode())


class Gpu:
    """One emulated GPU, as a Device of the core."""

    def __init__(self, index: int) -> None:
        self.index = index
        identity, name = c_char_p(), c_char_p()
        check(trials().device_describe(index, byref(identity), byref(name)))
        self.identity, self.name = (identity.value or b"").decode(), (name.value or b"").decode()

    def reaches(self, identity: str) -> bool:
        return bool(self._ask_int("device_reaches", identity.encode()))

    def make_stream(self, *, is_urgent: bool = False) -> c_void_p:
        return self._ask_pointer("device_make_stream", int(is_urgent))

    def record(self, stream: c_void_p | None) -> c_void_p:
        return self._ask_pointer("device_record", stream)

    def wait(self, stream: c_void_p | None, event: c_void_p) -> None:
        check(trials().device_wait(self.index, stream, event))

    def is_done(self, event: c_void_p) -> bool:
        return bool(self._ask_int("device_is_done", event))

    def synchronize(self, event: c_void_p) -> None:
        check(trials().device_synchronize(self.index, event))

    def finish(self, stream: c_void_p | None) -> None:
        self.synchronize(self.record(stream))

    def milliseconds(self, begin: c_void_p, end: c_void_p) -> float:
        result = c_double()
        check(trials().device_milliseconds(self.index, begin, end, byref(result)))
        return result.value

    def allocate(self, nbytes: int, *, is_pinned: bool = False) -> c_void_p:
        address = c_void_p()
        check(trials().device_allocate(self.index, c_size_t(nbytes), int(is_pinned), byref(address)))
        return address

    def pin(self, array: NDArray[Any]) -> bool:
        is_new = c_int()
        check(
            trials().device_pin(
                self.index, array.ctypes.data_as(c_void_p), c_size_t(array.nbytes), byref(is_new)
            )
        )
        return bool(is_new.value)

    def copy(self, stream: c_void_p | None, to: c_void_p, source: c_void_p, nbytes: int) -> None:
        check(trials().device_copy(self.index, stream, to, source, c_size_t(nbytes)))

    def fill(self, stream: c_void_p | None, memory: c_void_p, byte: int, nbytes: int) -> None:
        check(trials().device_fill(self.index, stream, memory, byte, c_size_t(nbytes)))

    def upload(self, array: NDArray[Any], stream: c_void_p | None = None) -> c_void_p:
        memory = self.allocate(array.nbytes)
        self.copy(stream, memory, address_of(array), array.nbytes)
        return memory

    def download(
        self, memory: c_void_p, count: int, dtype: Any, stream: c_void_p | None = None
    ) -> NDArray[Any]:
        array = np.empty(count, dtype)
        self.copy(stream, address_of(array), memory, array.nbytes)
        self.finish(stream)
        return array

    def _ask_int(self, function: str, *arguments: Any) -> int:
        result = c_int()
        check(getattr(trials(), function)(self.index, *arguments, byref(result)))
        return result.value

    def _ask_pointer(self, function: str, *arguments: Any) -> c_void_p:
        result = c_void_p()
        check(getattr(trials(), function)(self.index, *arguments, byref(result)))
        return result


def address_of(array: NDArray[Any]) -> c_void_p:
    return array.ctypes.data_as(c_void_p)


def make_id() -> bytes:
    raw = ctypes.create_string_buffer(128)
    check(trials().nccl_make_id(raw))
    return raw.raw


class Communicator:
    """A rank's communicator over the emulated NCCL, on its own stream. Its constructor waits for all."""

    def __init__(self, gpu: Gpu, unique: bytes, rank: int, size: int) -> None:
        self.gpu, self.rank, self.size, self.stream = gpu, rank, size, gpu.make_stream()
        self._handle = c_void_p()
        check(trials().nccl_make(gpu.index, self.stream, unique, rank, size, byref(self._handle)))

    def serves(self, dtype: int) -> bool:
        return bool(trials().nccl_serves(self._handle, dtype))

    def allreduce(self, source: c_void_p, destination: c_void_p, count: int, dtype: int, op: int = 0) -> None:
        check(trials().nccl_allreduce(self._handle, source, destination, c_int64(count), dtype, op))

    def broadcast(self, data: c_void_p, nbytes: int, root: int) -> None:
        check(trials().nccl_broadcast(self._handle, data, c_size_t(nbytes), root))

    def exchange(self, out: list[tuple[int, c_void_p, int]], into: list[tuple[int, c_void_p, int]]) -> None:
        sent, received = (Transfer * len(out))(*out), (Transfer * len(into))(*into)
        check(trials().nccl_exchange(self._handle, sent, c_size_t(len(out)), received, c_size_t(len(into))))

    def failure(self) -> str:
        return str(trials().nccl_failure(self._handle).decode())

    def abort(self) -> None:
        trials().nccl_abort(self._handle)

    def destroy(self) -> None:
        trials().nccl_destroy(self._handle)
