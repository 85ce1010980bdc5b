"""Error feedback of GPU tensors stays on the GPU, equals the CPU's, and is copied to the host on request."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from emulated_gpu import array, gpu_tensor, group_allreduce, over
from numpy.typing import NDArray
from ranks import AVERAGE, numbers, on_ranks

from horovod import _native

COUNT = 1000


def residuals(feedback: _native.Feedback) -> list[tuple[int, bytes]]:
    stages = []
    for stage in ("sent", "result"):
        begin, values = feedback.read(stage)
        stages.append((begin, np.from_dlpack(values).tobytes()))
    return stages


def step(
    engine: _native.Engine, feedback: _native.Feedback, values: NDArray[Any], gpu: int | None, codec: str
) -> bytes:
    """An allreduce with feedback, on the CPU or on a GPU."""
    [got] = group_allreduce(engine, [values], gpu, codec, [feedback], op=AVERAGE)
    return got.tobytes()


@pytest.mark.parametrize("codec", ["int4/128/hadamard/lloyd", "bit8/128/stochastic/seed1", "bit16"])
@pytest.mark.parametrize(
    ("algorithm", "hosts"),
    [("gather", ()), ("scatter", ()), ("hierarchical", (0, 0, 1)), ("hierarchical", (0, 0, 1, 2))],
)
def test_residuals_are_those_of_the_cpu(algorithm: str, hosts: tuple[int, ...], codec: str) -> None:
    size = len(hosts) or 3

    def program(rank: int, engine: _native.Engine, on_gpu: bool) -> list[Any]:
        feedback = _native.Feedback(COUNT)
        gpu = rank if on_gpu else None
        inputs = [numbers(rank, COUNT, np.float32, k) for k in range(5)]
        inputs[2] *= np.float32(1e10 if rank == 1 else 1)  # an outlier, which must leave no residual
        got = [step(engine, feedback, x, gpu, codec) for x in inputs]
        return [*got, feedback.nbytes, residuals(feedback), feedback.nbytes, feedback.usual]

    settings = over("nccl", algorithm)
    on_cpu = on_ranks(size, lambda rank, engine: program(rank, engine, False), settings=settings, hosts=hosts)
    on_gpu = on_ranks(size, lambda rank, engine: program(rank, engine, True), settings=settings, hosts=hosts)
    assert on_gpu == on_cpu
    stages = [np.frombuffer(values, np.float32) for of_rank in on_gpu for _, values in of_rank[-3]]
    assert 0 < max(np.abs(stage).max(initial=0) for stage in stages) < 10


@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
def test_residuals_go_back_and_forth(algorithm: str) -> None:
    """Between GPU and CPU, through a checkpoint, a change of scale and a restart."""
    codec = "int4/128"

    def program(rank: int, engine: _native.Engine, is_mixed: bool) -> list[Any]:
        feedback = _native.Feedback(COUNT)
        got: list[Any] = []
        for k in range(6):
            gpu = rank if is_mixed and k != 2 else None
            values = numbers(rank, COUNT, np.float32, k) * np.float32(1e10 if k == 4 else 1)
            got.append(step(engine, feedback, values, gpu, codec))
            if k == 3:
                got.append(residuals(feedback))
                kept = [(stage, *feedback.read(stage)) for stage in ("sent", "result")]
                usual = feedback.usual
                feedback = _native.Feedback(COUNT)
                feedback.usual = usual
                for stage, begin, values in kept:
                    feedback.restore(stage, begin, np.from_dlpack(values))
            if k == 4:
                feedback.scale(0.5)
        got += [residuals(feedback), feedback.usual]
        feedback.clear()
        return [*got, feedback.nbytes, residuals(feedback)]

    settings = over("nccl", algorithm)
    on_cpu = on_ranks(3, lambda rank, engine: program(rank, engine, False), settings=settings)
    mixed = on_ranks(3, lambda rank, engine: program(rank, engine, True), settings=settings)
    assert mixed == on_cpu


def test_a_new_world_drops_what_it_does_not_hold() -> None:
    """Slices change with the number of ranks: as on the CPU, a rank keeps the part that it still owns."""
    codec = "int4/128"
    feedbacks = {on_gpu: [_native.Feedback(COUNT) for _ in range(3)] for on_gpu in (True, False)}

    def run(size: int, on_gpu: bool) -> list[Any]:
        def program(rank: int, engine: _native.Engine) -> Any:
            feedback = feedbacks[on_gpu][rank]
            got = step(engine, feedback, numbers(rank, COUNT, np.float32), rank if on_gpu else None, codec)
            return got, engine.counters(0)["residuals_dropped"], residuals(feedback)

        return on_ranks(size, program, settings=over("nccl", "scatter"))

    assert run(3, True) == run(3, False)
    smaller = run(2, False)
    assert run(2, True) == smaller
    assert any(dropped for _, dropped, _ in smaller)


def test_residuals_read_while_the_gpu_works_are_of_the_last_operation() -> None:
    """Reading waits for the stream; other calls do not."""

    def program(rank: int, engine: _native.Engine, reads_at_once: bool) -> list[Any]:
        feedback = _native.Feedback(COUNT)
        reduction = _native.Reduction(codec=_native.codec_named("int4/128"))
        x = array(numbers(rank, COUNT, np.float32), rank)
        for _ in range(3):
            result = engine.wait(engine.allreduce("x", [gpu_tensor(x, feedback=feedback)], reduction))
            if not reads_at_once:
                result.order(x.stream.number)
                x.stream.synchronize()
        return residuals(feedback)

    settings = over("nccl", "scatter")
    at_once = on_ranks(2, lambda rank, engine: program(rank, engine, True), settings=settings)
    assert at_once == on_ranks(2, lambda rank, engine: program(rank, engine, False), settings=settings)
