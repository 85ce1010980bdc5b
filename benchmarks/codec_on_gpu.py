"""benchmarks/codec.py --device cuda: the kernels' speed beside the GPU's own copies of as many bytes.

A case is one codec on one list of tensors in a GPU's memory. Its operations are checked byte for byte before
they are timed.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import median
from typing import Any

import engine
import ml_dtypes
import numpy as np
import report
from gpus import Bytes, Gpu
from report import Record

from horovod import _native

# Part of the copy's speed, from LARGE bytes of elements on.
WANTED = {"encode": 0.85, "decode": 0.85, "reduce 4 to codes": 0.80}
WANTED_CODECS = ("bit8/128", "int8/128")
LARGE = 256 * report.MEGA
WANTED_BUCKET = 1.3  # limit of the time, over that of one tensor of as many bytes
BURST_BYTES, MOST_CALLS = 1 << 30, 20
PEERS = 4
ALIGNMENT = 512  # bytes: torch's allocator aligns tensors to this

RUN = 4096
FLOAT32 = 6
DTYPES: dict[str, tuple[int, np.dtype[Any]]] = {
    "float32": (FLOAT32, np.dtype(np.float32)),
    "float16": (5, np.dtype(np.float16)),
    "bfloat16": (9, np.dtype(ml_dtypes.bfloat16)),
}
Values = np.ndarray[Any, Any]


class WrongBytes(Exception):
    """A kernel and the CPU's codec do not agree."""


def runs(codec: _native.Codec, counts: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tensor, first element, elements, first byte in the message) of each run."""
    at = 0
    for tensor, count in enumerate(counts):
        for first in range(0, count, RUN):
            elements = min(RUN, count - first)
            yield tensor, first, elements, at
            at += codec.encoded_bytes(elements)


# The bytes that kernels must produce, computed by the CPU's codec. A message consists of pieces, one for each
# tensor, and a piece consists of runs of at most 4096 elements (docs/wire_format.md).


def encoded(codec: _native.Codec, dtype: str, tensors: list[Values], keys: list[int], nbytes: int) -> Bytes:
    number, numpy_dtype = DTYPES[dtype]
    message = np.zeros(nbytes, np.uint8)
    for tensor, first, elements, at in runs(codec, [values.size for values in tensors]):
        source = tensors[tensor].ctypes.data + first * numpy_dtype.itemsize
        target = message.ctypes.data + at
        codec.encode(source, number, elements, target, key=keys[tensor], first=first)
    return message


def decoded(codec: _native.Codec, dtype: str, message: Bytes, counts: list[int]) -> list[Values]:
    number, numpy_dtype = DTYPES[dtype]
    tensors = [np.zeros(count, numpy_dtype) for count in counts]
    for tensor, first, elements, at in runs(codec, counts):
        target = tensors[tensor].ctypes.data + first * numpy_dtype.itemsize
        codec.decode(message.ctypes.data + at, elements, target, number)
    return tensors


def reduced(codec: _native.Codec, messages: list[Bytes], counts: list[int]) -> list[Values]:
    """Sum in float32, in the messages' order."""
    sums = decoded(codec, "float32", messages[0], counts)
    for message in messages[1:]:
        for tensor, first, elements, at in runs(codec, counts):
            accumulator = sums[tensor].ctypes.data + first * 4
            codec.decode_add(message.ctypes.data + at, elements, accumulator)
    return sums


def compare(what: str, got: Bytes, wanted: Bytes) -> None:
    differing = np.flatnonzero(got != wanted)
    if differing.size:
        at = int(differing[0])
        raise WrongBytes(
            f"{what}: {differing.size} of {wanted.size} bytes differ from the CPU codec's, "
            f"the first at {at}: {got[at]} instead of {wanted[at]}"
        )


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
        self.number, self.numpy_dtype = DTYPES[dtype]
        size = self.numpy_dtype.itemsize
        ends = accumulate(-(-count * size // ALIGNMENT) * ALIGNMENT for count in counts)
        self.starts = [0, *ends]
        self.nbytes = self.starts.pop()
        values = np.random.default_rng(seed).standard_normal(self.nbytes // size, dtype=np.float32)
        self._values = values.astype(self.numpy_dtype)
        self.source, self.destination = gpu.allocate(self.nbytes), gpu.allocate(self.nbytes)

    def of_peer(self, peer: int) -> Values:
        """Return other numbers for each peer, by rotation: random numbers would take most of the time."""
        return np.roll(self._values, 1021 * peer)

    def split(self, values: Values) -> list[Values]:
        """Return views of each tensor's part of an array."""
        firsts = [start // self.numpy_dtype.itemsize for start in self.starts]
        parts = zip(firsts, self.counts, strict=True)
        return [values[first : first + count] for first, count in parts]


class Case:
    """A codec's kernels on these tensors. The constructor compares their bytes with the CPU codec's."""

    def __init__(self, tensors: Tensors, codec: str) -> None:
        self.tensors, self.gpu = tensors, tensors.gpu
        self.codec = _native.codec_named(codec)
        self._kind = (self.codec.name, tensors.number)
        self._name = f"{self.codec.name} {tensors.dtype}"
        self.keys = [17 + 1000003 * number for number in range(len(tensors.counts))]
        device, stream = self.gpu.device, self.gpu.stream
        source, destination = tensors.source.address, tensors.destination.address
        pieces = [
            _native.DevicePiece(source=source + start, destination=destination + start, count=count, key=key)
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
            wanted = encoded(self.codec, tensors.dtype, parts, self.keys, self.nbytes)
            self._compare(f"encode of peer {peer}", memory, wanted)
            messages.append(wanted)
        self._decode()
        last = decoded(self.codec, tensors.dtype, messages[-1], tensors.counts)
        self._compare_destinations("decode", last)
        self._to_codes()
        sums = reduced(self.codec, messages, tensors.counts)
        wanted = encoded(self.codec, "float32", sums, self.keys, self.nbytes)
        self._compare("reduce to codes", self.result, wanted)
        self._to_elements()
        self._compare_destinations("reduce to elements", [part.astype(tensors.numpy_dtype) for part in sums])

    def _compare(self, what: str, memory: _native.DeviceMemory, wanted: Bytes) -> None:
        compare(f"{self._name} {what}", self.gpu.read(memory, self.nbytes), wanted)

    def _compare_destinations(self, what: str, wanted: list[Values]) -> None:
        tensors = self.tensors
        found = self.gpu.read(tensors.destination, tensors.nbytes).view(tensors.numpy_dtype)
        for number, (got, right) in enumerate(zip(tensors.split(found), wanted, strict=True)):
            name = f"{self._name} {what}, tensor {number}"
            compare(name, got.view(np.uint8), right.view(np.uint8))

    def _encode(self, message: _native.DeviceMemory) -> None:
        self.gpu.device.encode(self.gpu.stream, *self._kind, self.pieces, message.address)

    def _decode(self) -> None:
        self.gpu.device.decode(self.gpu.stream, *self._kind, self.pieces, self.messages[-1].address)

    def _sum(self, to_destination: bool) -> Callable[[], None]:
        """Return a call that sums the peers' messages, into elements or into codes."""
        addresses = [memory.address for memory in self.messages]
        result = 0 if to_destination else self.result.address
        name, number = self._kind
        summed = _native.DeviceSum(number, name, name, addresses, to_destination, result)
        return lambda: self.gpu.device.reduce(self.gpu.stream, self.pieces, summed)

    def operations(self, copy_from: _native.DeviceMemory, copy_to: _native.DeviceMemory) -> list[Operation]:
        """Return the operations to time. The copies use as much of the given memory as they need."""
        elements = sum(self.tensors.counts) * self.tensors.numpy_dtype.itemsize
        runs: list[tuple[str, int, Callable[[], object]]] = [
            ("encode", elements + self.nbytes, lambda: self._encode(self.messages[-1])),
            ("decode", self.nbytes + elements, self._decode),
            (f"reduce {PEERS} to codes", (PEERS + 1) * self.nbytes, self._to_codes),
            (f"reduce {PEERS} to elements", PEERS * self.nbytes + elements, self._to_elements),
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


def measure(gpu: Gpu, operations: list[Operation], rounds: int, most_calls: int) -> None:
    """Time every operation and right after it its copy, once per round, in a rotating order.

    The first round is a warm-up and does not count.
    """
    for number, operation in report.in_turn(operations, rounds + 1):
        calls = max(1, min(most_calls, BURST_BYTES // max(operation.nbytes, 1)))
        own, copy = gpu.seconds(operation.run, calls), gpu.seconds(operation.copy, calls)
        if number:
            operation.seconds.append(own)
            operation.copy_seconds.append(copy)


def record(operation: Operation, codec: str, size: int, tensors: int) -> Record:
    seconds, copy = median(operation.seconds), median(operation.copy_seconds)
    wanted = WANTED.get(operation.name) if codec in WANTED_CODECS and size >= LARGE and tensors == 1 else None
    return {
        "codec": codec,
        "operation": operation.name,
        "bytes": size,
        "tensors": tensors,
        "moved": operation.nbytes,
        "seconds": seconds,
        "spread": report.spread(operation.seconds),
        "gb_per_s": operation.nbytes / seconds / report.GIGA,
        "copy_gb_per_s": operation.nbytes / copy / report.GIGA,
        "copy_spread": report.spread(operation.copy_seconds),
        "versus_copy": copy / seconds,
        "wanted": wanted,
    }


def rows_of(gpu: Gpu, count_lists: list[list[int]], chosen: argparse.Namespace) -> list[Record]:
    """Return records of each codec on each list of tensors; the lists are timed together, round by round."""
    layouts = [Tensors(gpu, counts, chosen.dtype, chosen.seed) for counts in count_lists]
    longest = max(map(most_copied, layouts))
    copy_from, copy_to = gpu.allocate(longest), gpu.allocate(longest)
    rows = []
    for codec in chosen.codecs:
        sets = [Case(tensors, codec).operations(copy_from, copy_to) for tensors in layouts]
        everything = [operation for operations in sets for operation in operations]
        measure(gpu, everything, chosen.rounds, 1 if chosen.quick else MOST_CALLS)
        for tensors, operations in zip(layouts, sets, strict=True):
            size = sum(tensors.counts) * tensors.numpy_dtype.itemsize
            rows += [record(operation, codec, size, len(tensors.counts)) for operation in operations]
    return rows


def bucket_counts(quick: bool) -> list[int]:
    """Return the number of elements of ResNet-50's 161 gradients; `quick` shortens each."""
    sizes = engine.gradient_sizes()
    return [max(1, count // 5000) for count in sizes] if quick else sizes


COLUMNS: report.Columns = {
    "size": "{bytes:size}",
    "codec": "{codec}",
    "operation": "{operation}",
    "time": "{seconds:time}",
    "spread": "{spread:.0%}",
    "GB/s": "{gb_per_s:.0f}",
    "copy": "{copy_gb_per_s:.0f}",
    "spread#": "{copy_spread:.0%}",
    "/ copy": "{versus_copy:.2f}",
    "wanted": "{wanted:.2f}",
}


def bucket_table(rows: list[Record]) -> str:
    """Return rows of a list of tensors beside the rows of one tensor with as many elements."""
    one = {(row["codec"], row["operation"]): row["seconds"] for row in rows if row["tensors"] == 1}
    several = [row | {"one": one[row["codec"], row["operation"]]} for row in rows if row["tensors"] > 1]
    columns: report.Columns = {
        "codec": "{codec}",
        "operation": "{operation}",
        f"{several[0]['tensors']} tensors": "{seconds:time}",
        "spread": "{spread:.0%}",
        "one tensor": "{one:time}",
        "times as long": lambda row: f"{row['seconds'] / row['one']:.2f}",
        "at most": lambda row: f"{WANTED_BUCKET:.2f}",
    }
    return report.table_of(several, columns, left=2)


def main(chosen: argparse.Namespace) -> int:
    gpu = Gpu("codec.py", 0)
    facts = report.machine() | gpu.facts()
    print(f"{chosen.dtype} N(0,1), median of {chosen.rounds} rounds by the GPU's own clock.")
    print("All bytes are compared with the CPU codec's before anything is timed. GB/s counts what is read")
    print("and written; copy is one inside the GPU's memory of as many bytes, right after each kernel;")
    print("/ copy = its time over the kernel's; wanted = what that should be at least.")
    print(report.machine_text(facts), flush=True)
    size = 4 if chosen.dtype == "float32" else 2
    rows: list[Record] = []
    for megabytes in chosen.size_mb:
        found = rows_of(gpu, [[int(megabytes * report.MEGA) // size]], chosen)
        print(report.table_of(found, COLUMNS, left=3), flush=True)
        rows += found
    counts = bucket_counts(chosen.quick)
    bucket = rows_of(gpu, [counts, [sum(counts)]], chosen)
    whole = report.size_text(sum(counts) * size)
    print(f"\nThe gradients of ResNet-50, {whole}, as a bucket and as one tensor")
    print(bucket_table(bucket))
    after = gpu.facts()
    print(f"\nAfterwards: {report.machine_text(after)}")
    settings = {"rounds": chosen.rounds, "seed": chosen.seed, "dtype": chosen.dtype}
    about = {"benchmark": "codec on a GPU", "machine": facts, "afterwards": after, "settings": settings}
    report.write_json(chosen.out, about | {"rows": rows, "bucket": bucket})
    return 0
