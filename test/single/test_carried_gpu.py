"""Carried reductions on GPUs (emulated ones) have the messages, results and residuals of the CPU."""

from __future__ import annotations

import functools
from random import Random
from typing import Any

import numpy as np
import pytest
from carried_ranks import UNWRITTEN, Array, Bytes, Job, Part, addresses_in, reducescatter
from codec_cases import NAMES
from emulated_gpu import Gate, GpuArray, Stream, array, gpu_tensor
from ranks import AVERAGE, DTYPES, MAX, MIN, SUM, numbers
from test_carried import ROUTES, STOCHASTIC, assert_same, assert_same_values, part
from test_carried_engine import residuals

from horovod import _native

IN_FLOAT32 = ["float32", "float16", "bfloat16"]
GUARD = 32


@functools.cache
def stream_of(rank: int) -> Stream:
    """Each rank has a GPU, and one stream for all its reductions, which residuals stay on."""
    return Stream(rank)


class GpuBlock:
    """Messages in the memory of a GPU, guarded."""

    def __init__(self, content: Bytes, stream: Stream) -> None:
        guard = np.full(GUARD, UNWRITTEN, np.uint8)
        self._all = GpuArray(np.concatenate([guard, content, guard]), stream)
        self.address = self._all.address + GUARD

    def read(self) -> Bytes:
        everything = self._all.numpy()
        assert (everything[:GUARD] == UNWRITTEN).all(), "written before the messages"
        assert (everything[-GUARD:] == UNWRITTEN).all(), "written past the messages"
        return everything[GUARD:-GUARD]


class GpuTensors:
    """One rank's tensors in the memory of its GPU, as CpuTensors has them."""

    def __init__(self, rank: int, in_place: bool) -> None:
        self._in_place, self._stream = in_place, stream_of(rank)
        self._kept: list[tuple[Array, GpuArray, GpuArray]] = []
        self._blocks: list[GpuBlock] = []
        self.place = {"device": rank, "stream": self._stream.number}

    def block(self, content: Bytes) -> GpuBlock:
        self._blocks.append(GpuBlock(content, self._stream))
        return self._blocks[-1]

    def view(self, x: Array, feedback: _native.Feedback | None, count: int | None = None) -> _native.Tensor:
        source = GpuArray(x, self._stream)
        shape = x.shape if count is None else count
        out = source if self._in_place else GpuArray(np.zeros(shape, x.dtype), self._stream)
        self._kept.append((x, source, out))
        return gpu_tensor(source, out, feedback)

    def results(self) -> list[Array]:
        for x, source, _ in self._kept:
            assert self._in_place or source.numpy().tobytes() == x.tobytes(), "a source was written to"
        return [out.numpy() for *_, out in self._kept]


def jobs(size: int, is_scattered: bool) -> tuple[Job, Job]:
    return Job(size, is_scattered, GpuTensors), Job(size, is_scattered)


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["", *NAMES])
def test_every_codec(codec: str, is_scattered: bool) -> None:
    on_gpu, on_cpu = jobs(3, is_scattered)
    dtype = IN_FLOAT32[len(codec) % 3]
    for step in range(2):
        parts = [part(3, codec, dtype, step=step, prescale=0.5, postscale=3.0)]
        assert_same(on_gpu.allreduce(parts, in_place=step == 1), on_cpu.allreduce(parts))


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("dtype", IN_FLOAT32)
def test_parts_that_differ_share_a_message(dtype: str, is_scattered: bool) -> None:
    """Nothing is left of what was in the memory of the messages: gaps are zeros."""
    on_gpu, on_cpu = jobs(4, is_scattered)
    for step in range(2):
        parts = [
            part(4, "bit8/32", dtype, (1, 77), step, "a", prescale=2.0),
            part(4, "", dtype, (33, 1), step, "b", op=SUM),
            part(4, STOCHASTIC, dtype, (5000, 0), step, "c"),
            part(4, "", "float16", (5,), step, "d"),
        ]
        assert_same(on_gpu.allreduce(parts), on_cpu.allreduce(parts))


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["bit8/32", "bit16", STOCHASTIC, "int4/128/stochastic/hadamard"])
def test_residuals_over_steps(codec: str, is_scattered: bool) -> None:
    """They live on the GPU, and are those of the CPU when they are asked for, also between steps."""
    on_gpu, on_cpu = jobs(3, is_scattered)
    for job in (on_gpu, on_cpu):
        job.keep_residuals([part(3, codec)])
    for step in range(4):
        parts = [part(3, codec, step=step, prescale=1 / 3, op=SUM)]
        assert_same(on_gpu.allreduce(parts), on_cpu.allreduce(parts))
        if step % 2:
            for ours, theirs in zip(on_gpu.feedback, on_cpu.feedback, strict=True):
                assert residuals(ours) == residuals(theirs)


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["bit8/32", STOCHASTIC, "int4/128/stochastic/hadamard"])
def test_steps(codec: str, is_scattered: bool) -> None:
    on_gpu, on_cpu = jobs(3, is_scattered)
    for job in (on_gpu, on_cpu):
        job.keep_residuals([part(3, codec, counts=(20_000, 1, 5000))])
    for turn in range(2):
        parts = [part(3, codec, counts=(20_000, 1, 5000), step=turn), part(3, counts=(33,), of="exact")]
        got = on_gpu.allreduce(parts, turn == 1, 4096, Random(turn))
        assert got.steps > 1
        assert_same(got, on_cpu.allreduce(parts, turn == 1, 4096))
        for ours, theirs in zip(on_gpu.feedback, on_cpu.feedback, strict=True):
            assert residuals(ours) == residuals(theirs)


@pytest.mark.parametrize("is_scattered", ROUTES)
@pytest.mark.parametrize("codec", ["", "bit8/128"])
def test_a_world_of_one(codec: str, is_scattered: bool) -> None:
    for dtype in IN_FLOAT32:
        parts = [part(1, codec, dtype, prescale=0.5, postscale=6.0)]
        for in_place in (True, False):
            on_gpu, on_cpu = jobs(1, is_scattered)
            assert_same_values(on_gpu.allreduce(parts, in_place), on_cpu.allreduce(parts, in_place))


@pytest.mark.parametrize("codec", ["", *NAMES[::3], STOCHASTIC])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_reducescatter(size: int, codec: str) -> None:
    how = Part({}, codec, AVERAGE, 0.5, 3.0)
    for dtype in IN_FLOAT32:
        for shape in ((size, 1), (2 * size, 70), (size, 4099), (size, 0)):
            xs = [numbers(r, int(np.prod(shape)), DTYPES[dtype][1]).reshape(shape) for r in range(size)]
            keys = [[_native.DrawKeys() for _ in range(size)] for _ in range(2)]
            on_gpu = reducescatter("x", xs, how, keys[0], GpuTensors)
            assert_same(on_gpu, reducescatter("x", xs, how, keys[1]))


def test_calls_return_while_the_stream_waits() -> None:
    """All is enqueued, and then done in order. Of rank 0, to which its own messages come back as results."""
    x = array(np.zeros(5000, np.float32))
    stream = x.stream.number
    codec = _native.get_codec("bit8")
    gate = Gate(x, add=1.0)
    made: list[Any] = []
    for turn in range(10):
        out = GpuArray(np.zeros(5000, np.float32), Stream(0))
        reduction = _native.CarriedAllreduce(
            [(_native.Reduction(SUM, 1.0, turn + 1.0, codec), ["x"], [gpu_tensor(x, out)])],
            *(0, 2, True, _native.DrawKeys(), 0, stream),
        )
        made.append((reduction, out, GpuArray(np.zeros(4 * reduction.message_bytes, np.uint8), Stream(0))))
    for reduction, _, memory in made:
        end = memory.address + 2 * reduction.message_bytes
        messages = addresses_in(memory, 2, reduction.message_bytes)
        reduction.pack(messages)
        reduction.reduce(messages, end)
        reduction.unpack(messages)
    assert not x.stream.is_idle()
    gate.open()
    x.stream.synchronize()
    for reduction, out, memory in made:
        assert (out.numpy() == 1.0).all()
        result = memory.numpy()[2 * reduction.message_bytes :][: reduction.result_bytes]
        assert result.any()


def test_what_kernels_do_not_sum() -> None:
    def refused(dtype: Any, op: int, size: int = 2, codec: str = "") -> str:
        x = array(np.zeros(64, dtype))
        how = _native.Reduction(op, codec=_native.codec_named(codec) if codec else None)
        words = "'x': GPUs sum float32, float16 and bfloat16 in rank order, of 64 ranks at most, and this is "
        with pytest.raises(ValueError, match=words) as error:
            _native.CarriedAllreduce(
                [(how, ["x"], [gpu_tensor(x)])], 0, size, False, _native.DrawKeys(), 0, x.stream.number
            )
        return str(error.value).removeprefix(words)

    assert refused(np.int32, SUM) == "Sum of int32 over 2; let the process group reduce it"
    assert refused(np.float64, AVERAGE, codec="bit8/128").startswith("Average of float64 over 2;")
    assert refused(np.float32, MAX).startswith("Max of float32 over 2;")
    assert refused(np.float32, MIN).startswith("Min of float32 over 2;")
    assert refused(np.float32, SUM, size=65).startswith("Sum of float32 over 65;")


def test_tensors_of_another_gpu() -> None:
    x = array(np.zeros(8, np.float32), gpu=1)
    for device, words in ((0, "messages are in the memory of GPU 0"), (-1, "messages are in CPU memory")):
        with pytest.raises(ValueError, match=f"'x': the tensor is in the memory of GPU 1, and {words}"):
            _native.CarriedReduceScatter(
                _native.Reduction(), "x", gpu_tensor(x), 0, 2, _native.DrawKeys(), device, 0
            )
