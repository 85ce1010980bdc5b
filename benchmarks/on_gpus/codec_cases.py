"""One codec on one list of tensors in a GPU's memory: its operations, checked byte for byte, for timing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

import numpy as np

from horovod import _native
from on_gpus import codec_twin as twin
from on_gpus.device import Bytes, Gpu

PEERS = 4
ALIGNMENT = 512  # bytes: torch's allocator aligns tensors to this


@dataclass
class Operation:
    """An operation. The kernel, and the copy that it is compared with, read and write `nbytes`."""

    name: str
    nbytes: int
    run: Callable[[], object]
    copy: Callable[[], object]
    seconds: list[float] = field(default_factory=list)
    copy_seconds: list[float] = field(default_factory=list)


class Tensors:
    """The values of every peer, and GPU memory for one peer's values: sources and destinations."""

    def __init__(self, gpu: Gpu, counts: list[int], dtype: str, seed: int) -> None:
        self.gpu, self.counts, self.dtype = gpu, counts, dtype
        self.number, self.numpy_dtype = twin.DTYPES[dtype]
        size = self.numpy_dtype.itemsize
        ends = accumulate(-(-count * size // ALIGNMENT) * ALIGNMENT for count in counts)
        self.starts = [0, *ends]
        self.nbytes = self.starts.pop()
        values = np.random.default_rng(seed).standard_normal(self.nbytes // size, dtype=np.float32)
        self._values = values.astype(self.numpy_dtype)
        self.source, self.destination = gpu.allocate(self.nbytes), gpu.allocate(self.nbytes)

    def of_peer(self, peer: int) -> np.ndarray[Any, Any]:
        """Return other numbers for each peer, by rotation: random numbers would take most of the time."""
        return np.roll(self._values, 1021 * peer)

    def split(self, values: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
        """Return views of each tensor's part of an array."""
        firsts = [start // self.numpy_dtype.itemsize for start in self.starts]
        parts = zip(firsts, self.counts, strict=True)
        return [values[first : first + count] for first, count in parts]


class Case:
    """A codec's kernels on these tensors. The constructor compares their bytes with the CPU codec's."""

    def __init__(self, tensors: Tensors, codec: str) -> None:
        self.tensors, self.gpu = tensors, tensors.gpu
        self.codec = _native.codec_named(codec)
        self.keys = [17 + 1000003 * number for number in range(len(tensors.counts))]
        device, stream = self.gpu.device, self.gpu.stream
        pieces = [
            _native.DevicePiece(
                source=tensors.source.address + start,
                destination=tensors.destination.address + start,
                count=count,
                key=key,
            )
            for start, count, key in zip(tensors.starts, tensors.counts, self.keys, strict=True)
        ]
        self.pieces = _native.DevicePieces(device, stream, codec, tensors.number, pieces)
        self.nbytes = self.pieces.message_bytes
        self.messages = [self.gpu.allocate(self.nbytes) for _ in range(PEERS)]
        self.result = self.gpu.allocate(self.nbytes)
        self._to_codes, self._to_elements = self._sum(to_destination=False), self._sum(to_destination=True)
        self._check()

    def _check(self) -> None:
        """Leave the peers' messages in place, and the last peer's values in the sources."""
        tensors, messages = self.tensors, []
        for peer, memory in enumerate(self.messages):
            values = tensors.of_peer(peer)
            self.gpu.write(tensors.source, values)
            self._encode(memory)
            parts = tensors.split(values)
            wanted = twin.encode(self.codec, tensors.dtype, parts, self.keys, self.nbytes)
            self._compare(f"encode of peer {peer}", memory, wanted)
            messages.append(wanted)
        self._decode()
        last = twin.decode(self.codec, tensors.dtype, messages[-1], tensors.counts)
        self._compare_destinations("decode", last)
        self._reduce_to_codes()
        sums = twin.reduce(self.codec, messages, tensors.counts)
        encoded = twin.encode(self.codec, "float32", sums, self.keys, self.nbytes)
        self._compare("reduce to codes", self.result, encoded)
        self._reduce_to_elements()
        self._compare_destinations("reduce to elements", [part.astype(tensors.numpy_dtype) for part in sums])

    def _compare(self, what: str, memory: _native.DeviceMemory, wanted: Bytes) -> None:
        twin.compare(f"{self._name} {what}", self.gpu.read(memory, self.nbytes), wanted)

    def _compare_destinations(self, what: str, wanted: list[np.ndarray[Any, Any]]) -> None:
        tensors = self.tensors
        found = self.gpu.read(tensors.destination, tensors.nbytes).view(tensors.numpy_dtype)
        for number, (got, right) in enumerate(zip(tensors.split(found), wanted, strict=True)):
            name = f"{self._name} {what}, tensor {number}"
            twin.compare(name, got.view(np.uint8), right.view(np.uint8))

    @property
    def _name(self) -> str:
        return f"{self.codec.name} {self.tensors.dtype}"

    def _encode(self, message: _native.DeviceMemory) -> None:
        number, name = self.tensors.number, self.codec.name
        self.gpu.device.encode(self.gpu.stream, name, number, self.pieces, message.address)

    def _decode(self) -> None:
        number, name = self.tensors.number, self.codec.name
        self.gpu.device.decode(self.gpu.stream, name, number, self.pieces, self.messages[-1].address)

    def _sum(self, to_destination: bool) -> _native.DeviceSum:
        addresses = [memory.address for memory in self.messages]
        result = 0 if to_destination else self.result.address
        name = self.codec.name
        return _native.DeviceSum(self.tensors.number, name, name, addresses, to_destination, result)

    def _reduce_to_codes(self) -> None:
        self.gpu.device.reduce(self.gpu.stream, self.pieces, self._to_codes)

    def _reduce_to_elements(self) -> None:
        self.gpu.device.reduce(self.gpu.stream, self.pieces, self._to_elements)

    def operations(self, copy_from: _native.DeviceMemory, copy_to: _native.DeviceMemory) -> list[Operation]:
        """Return the operations to time. The copies use as much of the given memory as they need."""
        elements = sum(self.tensors.counts) * self.tensors.numpy_dtype.itemsize
        runs: list[tuple[str, int, Callable[[], object]]] = [
            ("encode", elements + self.nbytes, lambda: self._encode(self.messages[-1])),
            ("decode", self.nbytes + elements, self._decode),
            (f"reduce {PEERS} to codes", (PEERS + 1) * self.nbytes, self._reduce_to_codes),
            (f"reduce {PEERS} to elements", PEERS * self.nbytes + elements, self._reduce_to_elements),
        ]

        def copying(nbytes: int) -> Callable[[], object]:
            half, device, stream = nbytes // 2, self.gpu.device, self.gpu.stream
            return lambda: device.copy(stream, copy_to.address, copy_from.address, half)

        return [Operation(name, nbytes, run, copying(nbytes)) for name, nbytes, run in runs]


def most_copied(tensors: Tensors) -> int:
    """Return the bytes of the largest copy that an operation on these tensors is compared with.

    No codec makes more than 3 bytes of an element.
    """
    count = sum(tensors.counts)
    return max((PEERS + 1) * 3 * count, tensors.nbytes + PEERS * 3 * count) // 2 + ALIGNMENT
