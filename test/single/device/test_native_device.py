"""One GPU as benchmarks use it (native.Device): messages and sums equal those of the CPU's codecs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from native_codec import Bytes
from numpy.typing import NDArray
from ranks import NUMBERS, numbers
from refusals import refused

from horovod import _native

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "emulated_cuda"))

from cuda_twin import decoded_message, encoded_message, summed
from device_kernels import Asked, Tensor
from emulated_gpu import LIBRARY  # the import makes the core use it

from horovod.common.exceptions import WrongArgument

COUNTS = (5000, 0, 1, 129)
FLOAT32, INT32 = 6, 3
CODECS = ["bit16", "bit8/128", "int4/128/stochastic/hadamard"]


class OneStream:
    """A GPU with one stream."""

    def __init__(self) -> None:
        self.device = _native.Device(1)
        self.stream = self.device.make_stream()

    def memory(self, values: NDArray[Any]) -> _native.DeviceMemory:
        memory = self.device.allocate(values.nbytes)
        self._move(memory.address, values.ctypes.data, values.nbytes)
        return memory

    def read(self, memory: _native.DeviceMemory, dtype: Any = np.uint8) -> NDArray[Any]:
        values = np.zeros(memory.nbytes, np.uint8)
        self._move(values.ctypes.data, memory.address, values.nbytes)
        return values.view(dtype)

    def _move(self, to: int, source: int, nbytes: int) -> None:
        self.device.copy(self.stream, to, source, nbytes)
        self.device.synchronize(self.device.record(self.stream))


class Pieces:
    """Tensors in the GPU's memory, and memory for each result."""

    def __init__(self, gpu: OneStream, codec: str, tensors: Sequence[Tensor]) -> None:
        self.gpu = gpu
        self.sources = [gpu.memory(tensor.values) for tensor in tensors]
        self.destinations = [gpu.memory(np.zeros_like(tensor.values)) for tensor in tensors]
        pieces = [
            _native.DevicePiece(
                source=source.address,
                destination=destination.address,
                count=tensor.values.size,
                key=tensor.key,
                first_number=tensor.first,
            )
            for tensor, source, destination in zip(tensors, self.sources, self.destinations, strict=True)
        ]
        self.dtype = NUMBERS[tensors[0].values.dtype]
        self.table = _native.DevicePieces(gpu.device, gpu.stream, codec, self.dtype, pieces)

    def results(self, dtype: Any) -> list[bytes]:
        return [self.gpu.read(memory, dtype).tobytes() for memory in self.destinations]


def tensors_of(rank: int) -> list[Tensor]:
    return [Tensor(numbers(rank, count, np.float32, count), key=count + 7, first=3) for count in COUNTS]


def as_bytes(xs: Sequence[NDArray[Any]]) -> list[bytes]:
    return [x.tobytes() for x in xs]


@pytest.fixture
def gpu() -> OneStream:
    return OneStream()


@pytest.mark.parametrize("name", CODECS)
def test_messages_there_and_back(gpu: OneStream, name: str) -> None:
    codec, tensors = _native.codec_named(name), tensors_of(0)
    tensors[0].values[4321] = 1e30
    pieces = Pieces(gpu, name, tensors)
    wanted = encoded_message(codec, tensors, 0.5)
    message = gpu.memory(np.zeros(pieces.table.message_bytes, np.uint8))
    device, stream = gpu.device, gpu.stream
    device.take_saturated()
    device.encode(stream, name, FLOAT32, pieces.table, message.address, 0.5)
    assert gpu.read(message).tobytes() == wanted.message.tobytes()
    assert device.take_saturated() == wanted.saturated == (name == "bit16")
    device.decode(stream, name, FLOAT32, pieces.table, message.address)
    assert pieces.results(np.float32) == as_bytes(decoded_message(codec, tensors, wanted.message))


@pytest.mark.parametrize("name", CODECS)
def test_sums_of_codes_become_codes_or_elements(gpu: OneStream, name: str) -> None:
    codec, asked = _native.codec_named(name), Asked(divisor=3.0)
    pieces = Pieces(gpu, name, tensors_of(0))
    messages = [encoded_message(codec, tensors_of(rank)).message for rank in range(3)]
    sums = summed([decoded_message(codec, tensors_of(0), message) for message in messages], asked)
    addresses, kept = _addresses(gpu, messages)
    codes = encoded_message(codec, [_like(x, t) for x, t in zip(sums, tensors_of(0), strict=True)]).message
    elements = np.concatenate(sums)
    for result_codec, wanted in ((name, codes), ("", elements.view(np.uint8))):
        result = gpu.memory(np.zeros(wanted.size, np.uint8))
        made = _native.DeviceSum(FLOAT32, name, result_codec, addresses, False, result.address, asked.divisor)
        gpu.device.reduce(gpu.stream, pieces.table, made)
        assert gpu.read(result).tobytes() == wanted.tobytes()
    made = _native.DeviceSum(FLOAT32, name, name, addresses, to_destination=True, divisor=asked.divisor)
    gpu.device.reduce(gpu.stream, pieces.table, made)
    assert pieces.results(np.float32) == as_bytes(sums)
    del kept


def test_sums_of_elements(gpu: OneStream) -> None:
    pieces = Pieces(gpu, "", tensors_of(0))
    parts = [[tensor.values for tensor in tensors_of(rank)] for rank in range(4)]
    assert pieces.table.message_bytes == 4 * sum(COUNTS)
    addresses, kept = _addresses(gpu, [np.concatenate(each).view(np.uint8) for each in parts])
    made = _native.DeviceSum(FLOAT32, "", "", addresses, to_destination=True)
    gpu.device.reduce(gpu.stream, pieces.table, made)
    assert pieces.results(np.float32) == as_bytes(summed(parts, Asked()))
    del kept


def _addresses(gpu: OneStream, messages: Sequence[Bytes]) -> tuple[list[int], list[_native.DeviceMemory]]:
    kept = [gpu.memory(message) for message in messages]
    return [memory.address for memory in kept], kept


def _like(values: NDArray[np.float32], tensor: Tensor) -> Tensor:
    return Tensor(values, key=tensor.key, first=tensor.first)


def test_what_it_is(gpu: OneStream) -> None:
    device = gpu.device
    assert LIBRARY.is_file() and (device.index, device.name) == (1, "Emulated GPU")
    assert device.identity == _native.gpu_facts().identities[1]
    assert device.make_stream(is_urgent=True) != gpu.stream
    assert device.allocate_pinned(10).nbytes == 10
    begin, end = device.record(gpu.stream), device.record(gpu.stream)
    device.synchronize(end)
    assert device.milliseconds_between(begin, end) >= 0


def test_what_cannot_be_is_refused(gpu: OneStream) -> None:
    device, stream = gpu.device, gpu.stream
    with refused(WrongArgument, "negative", parameter="nbytes", value=-1):
        device.allocate(-1)
    with refused(WrongArgument, "negative", parameter="count", value=-2):
        _native.DevicePieces(device, stream, "", INT32, [_native.DevicePiece(count=-2)])
    for number in (-1, 99):
        with refused(WrongArgument, "dtype_unknown", value=number):
            _native.DevicePieces(device, stream, "", number, [])
    for messages in ([], [1] * 65):
        with refused(WrongArgument, "gpu_sum_count_wrong", most=64, count=len(messages)):
            _native.DeviceSum(FLOAT32, "", "", messages)
    with refused(WrongArgument, "gpu_sum_recodes", codec="bit16", got="bit8/128"):
        _native.DeviceSum(FLOAT32, "bit16", "bit8/128", [1])
    with refused(WrongArgument, "gpu_unknown", gpu=99, count=8):
        _native.Device(99)
