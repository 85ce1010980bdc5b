"""Calls of GPU kernels on NumPy arrays: buckets in a GPU's memory, and functions that run kernels on them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import byref, c_double, c_int, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from codec_cases import DTYPES
from device_trials import Gpu, check, trials
from native_codec import GUARD_BYTE, NUMPY_DTYPES, Bytes, Float32s
from native_testing import testing
from numpy.typing import NDArray

from horovod import _native as native

RUN = 4096
GUARD = 32
ALL_DTYPES = {"uint8": 0, "int8": 1, "int16": 2, "int32": 3, "int64": 4, **DTYPES, "bool": 8}


class Piece(ctypes.Structure):
    """DevicePiece of device/device_kernels.h."""

    _fields_ = (
        *(("source", c_void_p), ("destination", c_void_p), ("residual", c_void_p), ("count", c_int64)),
        *(("message_offset", c_int64), ("elements_offset", c_int64), ("first_run", c_int64)),
        *(("key", c_uint64), ("first_number", c_int64), ("bounds", c_void_p), ("turn", c_int64)),
    )


class Table(ctypes.Structure):
    _fields_ = (("pieces", c_void_p), ("count", c_int64), ("runs", c_int64))


class DeviceCodec(ctypes.Structure):
    _fields_ = (("format", c_int), ("is_stochastic", c_int), ("block", c_int), ("seed", c_uint64))


class Reduction(ctypes.Structure):
    _fields_ = (
        *(("dtype", c_int), ("codec_in", DeviceCodec), ("codec_out", DeviceCodec)),
        *(("messages", c_void_p), ("count", c_size_t)),
        *(("prescale", c_double), ("factor", c_double), ("divisor", c_double)),
        *(("to_destination", c_int), ("result", c_void_p)),
    )


def dtype_of(name: str) -> Any:
    return NUMPY_DTYPES.get(name) or np.dtype(name)


class Memory:
    """GPU memory between guards, `skew` bytes past an aligned address."""

    def __init__(self, gpu: Gpu, content: NDArray[Any], skew: int = 0) -> None:
        raw = np.ascontiguousarray(content).view(np.uint8).ravel()
        self._gpu, self._skew, self.nbytes = gpu, skew, raw.size
        everything = np.full(GUARD + skew + raw.size + GUARD, GUARD_BYTE, np.uint8)
        everything[GUARD + skew : GUARD + skew + raw.size] = raw
        self._all = gpu.upload(everything)
        gpu.finish(None)
        self.address = (self._all.value or 0) + GUARD + skew

    def read(self) -> Bytes:
        """The current content; asserts that the guards have not changed."""
        everything: Bytes = self._gpu.download(self._all, GUARD + self._skew + self.nbytes + GUARD, np.uint8)
        start, end = GUARD + self._skew, GUARD + self._skew + self.nbytes
        assert (everything[:start] == GUARD_BYTE).all(), "written before the memory"
        assert (everything[end:] == GUARD_BYTE).all(), "written past the memory"
        return everything[start:end]

    def free(self) -> None:
        trials().device_free(self._all)


@dataclass
class Tensor:
    """One piece of a bucket, on the host. `skew`: offset from an aligned GPU address, in elements."""

    values: NDArray[Any]
    residual: Float32s | None = None
    key: int = 0
    first: int = 0
    skew: int = 0


@dataclass
class Bucket:
    """Pieces in a GPU's memory, and their messages: of codes if a codec is named, and of elements."""

    gpu: Gpu
    tensors: Sequence[Tensor]
    codec_name: str = ""
    message_skew: int = 0
    dtype: str = "float32"
    memories: list[Memory] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.codec = native.codec_named(self.codec_name) if self.codec_name else None
        self.device_codec = DeviceCodec(*testing.device_codec(self.codec_name))
        self.sources, self.destinations, self.residuals = [], [], []
        pieces, runs, self.code_bytes, self.element_bytes = [], 0, 0, 0
        for tensor in self.tensors:
            skew = tensor.skew * tensor.values.itemsize
            self.sources.append(self.keep(tensor.values, skew))
            self.destinations.append(self.keep(np.full(tensor.values.nbytes, 7, np.uint8), skew))
            residual = tensor.residual
            self.residuals.append(None if residual is None else self.keep(residual, 4 * tensor.skew))
            count = tensor.values.size
            places = (self.code_bytes, self.element_bytes) if self.codec else (self.element_bytes, 0)
            kept = self.residuals[-1].address if self.residuals[-1] else None
            memory = (self.sources[-1].address, self.destinations[-1].address, kept)
            pieces.append(Piece(*memory, count, *places, runs, tensor.key, tensor.first))
            runs += -(-count // RUN)
            self.code_bytes += sum(self.run_bytes(count))
            self.element_bytes += tensor.values.nbytes
        raw = np.frombuffer(b"".join(bytes(piece) for piece in pieces), np.uint8)
        assert trials().kernels_piece_bytes() == ctypes.sizeof(Piece)
        self.table = Table(self.keep(raw).address, len(pieces), runs)

    def keep(self, content: NDArray[Any], skew: int = 0) -> Memory:
        self.memories.append(Memory(self.gpu, content, skew))
        return self.memories[-1]

    def free(self) -> None:
        for memory in self.memories:
            memory.free()

    def run_bytes(self, count: int) -> list[int]:
        return [self.codec.encoded_bytes(n) for _, n in runs_of(count)] if self.codec else []

    def message(self, content: NDArray[Any] | None = None, *, of_codes: bool = True) -> Memory:
        """A message in the GPU's memory; without content, zeros for a kernel to overwrite."""
        nbytes = self.code_bytes if of_codes else self.element_bytes
        return self.keep(np.zeros(nbytes, np.uint8) if content is None else content, self.message_skew)

    # Kernels.

    def encode(self, prescale: float = 1.0) -> tuple[Bytes, list[Float32s]]:
        message = self.message()
        self.call("kernels_encode", byref(self.device_codec), DTYPES[self.dtype], byref(self.table),
                  c_double(prescale), c_void_p(message.address))  # fmt: skip
        return message.read(), self.kept()

    def decode(self, message: Bytes) -> list[NDArray[Any]]:
        self.call("kernels_decode", byref(self.device_codec), DTYPES[self.dtype], byref(self.table),
                  c_void_p(self.message(message).address))  # fmt: skip
        return self.results()

    def pack(self, prescale: float) -> Bytes:
        message = self.message(of_codes=False)
        self.call("kernels_pack", ALL_DTYPES[self.dtype], byref(self.table), c_double(prescale),
                  c_void_p(message.address))  # fmt: skip
        return message.read()

    def unpack(self, message: Bytes, factor: float, divisor: float) -> list[NDArray[Any]]:
        self.call("kernels_unpack", ALL_DTYPES[self.dtype], byref(self.table), c_double(factor),
                  c_double(divisor), c_void_p(self.message(message, of_codes=False).address))  # fmt: skip
        return self.results()

    def reduce(self, contributions: Sequence[Bytes | None], asked: Asked) -> Bytes:
        """Reduce; return the result message. results() has the destinations, kept() the residuals."""
        given = [None if c is None else self.message(c, of_codes=asked.of_codes) for c in contributions]
        addresses = (c_void_p * len(given))(*(memory.address if memory else None for memory in given))
        result = self.message(of_codes=asked.to_codes) if asked.has_result else None
        none = DeviceCodec(*testing.device_codec(""))
        reduction = Reduction(
            DTYPES[self.dtype],
            *(self.device_codec if asked.of_codes else none, self.device_codec if asked.to_codes else none),
            *(ctypes.cast(addresses, c_void_p), len(given), asked.prescale, asked.factor, asked.divisor),
            *(int(asked.to_destination), result.address if result else None),
        )
        self.call("kernels_reduce", byref(self.table), byref(reduction))
        return result.read() if result else np.zeros(0, np.uint8)

    def call(self, function: str, *arguments: Any) -> None:
        check(getattr(trials(), function)(self.gpu.index, None, *arguments))
        self.gpu.finish(None)

    def results(self) -> list[NDArray[Any]]:
        return [memory.read().view(dtype_of(self.dtype)) for memory in self.destinations]

    def kept(self) -> list[Float32s]:
        return [memory.read().view(np.float32) for memory in self.residuals if memory]


@dataclass(frozen=True)
class Asked:
    """Options of a reduction."""

    of_codes: bool = True
    to_codes: bool = True
    has_result: bool = True
    to_destination: bool = True
    prescale: float = 1.0
    factor: float = 1.0
    divisor: float = 1.0


def saturated(gpu: Gpu) -> int:
    count = c_int64()
    check(trials().kernels_take_saturated(gpu.index, byref(count)))
    return count.value


def runs_of(count: int) -> list[tuple[int, int]]:
    """(first element, number of elements) of each run of a piece."""
    return [(begin, min(RUN, count - begin)) for begin in range(0, count, RUN)]
