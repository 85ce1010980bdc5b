"""Collectives of GPU tensors over NCCL give the same bytes as the same route on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from emulated_gpu import GpuArray, array, gpu_received, gpu_source, gpu_tensor, over
from numpy.typing import NDArray
from ranks import (
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    add_set,
    numbers,
    on_ranks,
    received,
    source_only,
    tensor,
)

from horovod import _native

Arrays = list[NDArray[Any]]
COUNTS = (5000, 0, 1, 129, 9000, 31)  # of tensors that are reduced together
CODECS = ["bit16", "bit8/128", "bit8/128/e5m2", "bit8/128/e3m4", "int8/128", "int4/128"]
CODECS += ["int4/128/hadamard/lloyd"]
IN_FLOAT32 = ["float32", "float16", "bfloat16"]


def inputs(rank: int, dtype: str, counts: Sequence[int] = COUNTS) -> Arrays:
    return [numbers(rank, count, DTYPES[dtype][1], seed) for seed, count in enumerate(counts)]


def reduced(engine: _native.Engine, xs: Arrays, gpu: int | None, in_place: bool, **reduction: Any) -> Arrays:
    """A group's allreduce, on the CPU or a GPU. The name is fixed, as random numbers depend on it."""
    if gpu is None:
        outs = [x.copy() for x in xs]
        engine.wait(engine.allreduce("x", [tensor(x) for x in outs], _native.Reduction(**reduction)))
        return outs
    sources = [array(x, gpu) for x in xs]
    results = sources
    if not in_place:
        results = [GpuArray(np.zeros_like(x), y.stream) for x, y in zip(xs, sources, strict=True)]
    tensors = [gpu_tensor(x, out) for x, out in zip(sources, results, strict=True)]
    result = engine.wait(engine.allreduce("x", tensors, _native.Reduction(**reduction)))
    for out in results:
        result.order(out.stream.number)
    values = [out.numpy() for out in results]
    for x, source in zip(xs, sources, strict=True):
        assert in_place or source.numpy().tobytes() == x.tobytes(), "a source was written to"
    return values


def assert_twins(
    size: int,
    settings: Callable[[], _native.Settings],
    xs_of: Callable[[int], Arrays],
    hosts: Sequence[int] = (),
    **reduction: Any,
) -> None:
    """All ranks get the same bytes, and GPUs the CPU's, in place and out of place."""

    def on_cpu(rank: int, engine: _native.Engine) -> Arrays:
        return reduced(engine, xs_of(rank), None, True, **reduction)

    expected = on_ranks(size, on_cpu, settings=settings(), hosts=hosts)
    for in_place in (True, False):

        def on_gpu(rank: int, engine: _native.Engine, in_place: bool = in_place) -> Arrays:
            return reduced(engine, xs_of(rank), rank, in_place, **reduction)

        for rank, got in enumerate(on_ranks(size, on_gpu, settings=settings(), hosts=hosts)):
            for x, y in zip(got, expected[rank], strict=True):
                assert x.tobytes() == y.tobytes(), f"rank {rank}, {x.size} elements"


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
def test_codes_by_any_route(codec: str, algorithm: str) -> None:
    for size, dtype in ((2, "float16"), (3, "float32"), (4, "bfloat16")):
        assert_twins(size, lambda: over("nccl", algorithm), lambda rank, dtype=dtype: inputs(rank, dtype),
                     op=AVERAGE, prescale=0.5, codec=_native.codec_named(codec))  # fmt: skip


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 0, 1), (0, 1, 1, 2)], ids=str)
@pytest.mark.parametrize("codec", ["bit16", "bit8/128", "int4/128/hadamard"])
def test_codes_over_several_hosts(codec: str, hosts: Sequence[int]) -> None:
    for dtype in IN_FLOAT32:
        assert_twins(len(hosts), lambda: over("nccl", "hierarchical"), lambda rank, t=dtype: inputs(rank, t),
                     hosts, op=AVERAGE, prescale=2.0, codec=_native.codec_named(codec))  # fmt: skip


@pytest.mark.parametrize("algorithm", ["gather", "scatter", "hierarchical"])
def test_random_rounding_has_the_numbers_of_the_cpu(algorithm: str) -> None:
    hosts = (0, 0, 1, 1) if algorithm == "hierarchical" else ()
    assert_twins(4, lambda: over("nccl", algorithm), lambda rank: inputs(rank, "float32"), hosts,
                 codec=_native.codec_named("int8/128/stochastic/seed3"))  # fmt: skip


@pytest.mark.parametrize("dtype", IN_FLOAT32)
@pytest.mark.parametrize("algorithm", ["auto", "gather", "scatter"])
def test_exact_sums_in_rank_order(algorithm: str, dtype: str) -> None:
    """For more than two ranks, as HOROVOD_DETERMINISTIC promises, too."""
    assert_twins(3, lambda: over("nccl", algorithm), lambda rank: inputs(rank, dtype),
                 op=AVERAGE, prescale=3.0)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_ncclallreduce_of_every_dtype_and_op(dtype: str) -> None:
    """Sums of small integers are exact in every dtype and order."""

    def whole(rank: int, counts: Sequence[int]) -> Arrays:
        kind = DTYPES[dtype][1]
        rng = np.random.default_rng(rank)
        return [rng.integers(0, 2 if dtype == "bool" else 4, count).astype(kind) for count in counts]

    def settings() -> _native.Settings:
        free = _native.Settings()
        free.gpu_transport = "nccl"
        return free

    for op in (SUM, AVERAGE, MIN, MAX, PRODUCT):
        for counts in ([300], [300, 0, 7]):
            for postscale in (1.0, 0.5):
                assert_twins(2, settings, lambda rank, counts=counts: whole(rank, counts),
                             op=op, postscale=postscale)  # fmt: skip


def test_an_average_of_halves_does_not_overflow() -> None:
    def program(rank: int, engine: _native.Engine) -> Arrays:
        return reduced(engine, [np.full(100, 60000, np.float16)] * 2, rank, True, op=AVERAGE)

    for got in on_ranks(2, program, settings=over("nccl")):
        assert all((x == 60000).all() for x in got)


def test_a_nan_wins() -> None:
    def program(rank: int, engine: _native.Engine) -> float:
        x = np.array([np.nan if rank == 0 else 1.0], np.float32)
        return float(reduced(engine, [x], rank, True, op=MAX)[0][0])

    assert all(np.isnan(x) for x in on_ranks(2, program, settings=over("nccl")))


@pytest.mark.parametrize("postscale", [1.0, 0.25])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "bool"])
def test_a_world_of_one(dtype: str, postscale: float) -> None:
    scales = {"prescale": 3.0, "postscale": postscale}
    assert_twins(1, lambda: over("nccl"), lambda rank: inputs(rank, dtype), op=AVERAGE, **scales)


def test_many_tensors() -> None:
    counts = [17 * i % 300 for i in range(150)]
    for algorithm in ("gather", "scatter"):
        settings = over("nccl", algorithm)
        assert_twins(3, lambda settings=settings: settings, lambda rank: inputs(rank, "float32", counts),
                     codec=_native.codec_named("bit8/128"))  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "codec", "count"),
    [("gather", None, 1_300_003), ("scatter", None, 4_300_003), ("hierarchical", "bit16", 4_500_003)],
)
def test_several_steps_are_under_way_at_once(algorithm: str, codec: str | None, count: int) -> None:
    hosts = (0, 0, 1, 1) if algorithm == "hierarchical" else ()
    named = _native.codec_named(codec) if codec else None

    def xs(rank: int) -> Arrays:
        return [numbers(rank, 1000, np.float16), numbers(rank, count, np.float16)]

    assert_twins(4, lambda: over("nccl", algorithm), xs, hosts, codec=named)


def test_process_sets_have_communicators_of_their_own() -> None:
    def program(rank: int, engine: _native.Engine) -> list[float]:
        everybody, odd = add_set(engine, 0, 1, 2, 3), add_set(engine, 1, 3)
        sums = []
        for process_set in (0, odd, everybody, 0):
            if process_set == odd and rank % 2 == 0:
                continue
            x = array(np.full(1000, rank + 1, np.float32), rank)
            codec = _native.codec_named("bit16")
            reduction = _native.Reduction(codec=codec)
            handle = engine.allreduce(f"{process_set}", [gpu_tensor(x)], reduction, process_set)
            engine.wait(handle).order(x.stream.number)
            sums.append(float(x.numpy()[0]))
        return sums

    for rank, sums in enumerate(on_ranks(4, program, settings=over("nccl"))):
        assert sums == ([10, 6, 10, 10] if rank % 2 else [10, 10, 10])


def test_joining_ranks_send_zeros() -> None:
    def program(rank: int, engine: _native.Engine) -> float:
        x = array(np.full(1000, rank + 1, np.float32), rank)
        if rank == 0:
            engine.wait(engine.allreduce("x", [gpu_tensor(x)], _native.Reduction())).order(x.stream.number)
        engine.wait(engine.join())
        return float(x.numpy()[0])

    def prepared(rank: int, engine: _native.Engine) -> float:
        reduced(engine, [np.ones(3, np.float32)], rank, True)  # every rank has used its GPU once
        return program(rank, engine)

    assert on_ranks(2, prepared, settings=over("nccl")) == [1.0, 2.0]


@pytest.mark.parametrize("codec", [None, "bit8/128", "int4/128"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64", "int32", "int16"])
def test_reducescatter(dtype: str, codec: str | None) -> None:
    if codec and "float" not in dtype:
        return
    named = _native.codec_named(codec) if codec else None
    size, shapes = 3, [(8, 50), (5, 1), (2, 1), (1, 300)]  # some ranks get one element, or none

    def program(on_gpu: bool) -> list[Any]:
        def body(rank: int, engine: _native.Engine) -> list[bytes]:
            xs = [numbers(rank, m * n, DTYPES[dtype][1], m).reshape(m, n) for m, n in shapes]
            outs = [np.empty((m // size + (rank < m % size), n), xs[0].dtype) for m, n in shapes]
            reduction = _native.Reduction(op=AVERAGE, codec=named)
            if not on_gpu:
                tensors = [tensor(x, out) for x, out in zip(xs, outs, strict=True)]
                engine.wait(engine.reducescatter("x", tensors, reduction))
                return [out.tobytes() for out in outs]
            sources = [array(x, rank) for x in xs]
            results = [GpuArray(out, x.stream) for out, x in zip(outs, sources, strict=True)]
            tensors = [gpu_tensor(x, to) for x, to in zip(sources, results, strict=True)]
            result = engine.wait(engine.reducescatter("x", tensors, reduction))
            for to in results:
                result.order(to.stream.number)
            return [to.numpy().tobytes() for to in results]

        return on_ranks(size, body, settings=over("nccl"))

    assert program(True) == program(False)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_what_moves_bytes(size: int) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = numbers(rank, 1 + 3 * rank, np.float32)[rank % 2 :].reshape(-1, 1)
        on_gpu = array(x, rank)
        on_cpu = received(engine.wait(engine.allgather("c", [source_only(x)])), x)
        result = engine.wait(engine.allgather("g", [gpu_source(on_gpu)]))
        assert gpu_received(result, on_gpu).tobytes() == on_cpu.tobytes()
        splits = [(rank + to) % 3 for to in range(size)]
        rows = numbers(rank, sum(splits) * 2, np.int64).reshape(-1, 2)
        on_cpu = received(engine.wait(engine.alltoall("ac", source_only(rows), splits)), rows)
        on_gpu = array(rows, rank)
        result = engine.wait(engine.alltoall("ag", gpu_source(on_gpu), splits))
        assert gpu_received(result, on_gpu).tobytes() == on_cpu.tobytes()
        for root in range(size):
            y = array(numbers(rank, 1000, np.float16), rank)
            engine.wait(engine.broadcast(f"b{root}", gpu_tensor(y), root)).order(y.stream.number)
            assert y.numpy().tobytes() == numbers(root, 1000, np.float16).tobytes()

    on_ranks(size, program, settings=over("nccl"))


@pytest.mark.parametrize("size", [1, 2, 4])
def test_a_broadcast_counts_as_a_ring_that_ends_before_the_root(size: int) -> None:
    def program(rank: int, engine: _native.Engine) -> list[int]:
        x = array(np.ones(1000, np.float16), rank)
        counted = [engine.counters()["wire_bytes"]]
        for root in range(size):
            engine.wait(engine.broadcast("x", gpu_tensor(x), root)).order(x.stream.number)
            counted.append(engine.counters()["wire_bytes"])
        return [after - before for before, after in pairwise(counted)]

    sent = on_ranks(size, program, settings=over("nccl"))
    for root in range(size):
        last = (root - 1) % size
        assert [by_root[root] for by_root in sent] == [0 if rank == last else 2000 for rank in range(size)]
