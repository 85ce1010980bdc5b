"""A host far ahead of its GPU: only operations over the limit wait."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from emulated_gpu import Gate, GpuArray, Stream, gpu_allreduce, gpu_submit, gpu_values, over
from ranks import add_set, allreduce, ends_within, on_ranks

from horovod import _native

COUNT = 60  # operations: more than are in flight at once
ONES = np.ones(8, np.float32)


def settings_for(transport: str) -> _native.Settings:
    settings = over(transport)
    settings.fusion_threshold = 0
    return settings


@pytest.mark.parametrize("transport", ["nccl", "host"])
def test_all_is_done_in_the_end(transport: str) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        stream = Stream(rank)
        xs = [GpuArray(np.full(8, i, np.float32), stream) for i in range(COUNT)]
        gate = Gate(xs[0], 1.0)
        handles = [gpu_submit(engine, f"x{i}", x, postscale=0.5) for i, x in enumerate(xs)]
        assert not ends_within(engine, handles[0], 0.3)
        gate.open()
        assert gpu_values(engine, handles[0], xs[0]).tolist() == [1.0] * 8
        for i in range(1, COUNT):
            assert gpu_values(engine, handles[i], xs[i]).tolist() == [i] * 8
        handles = [gpu_submit(engine, f"x{i}", x) for i, x in enumerate(xs)]  # by numbers now
        assert [gpu_values(engine, h, x)[0] for h, x in zip(handles, xs, strict=True)] == [
            2.0,
            *(2.0 * i for i in range(1, COUNT)),
        ]

    on_ranks(2, program, settings=settings_for(transport))


def test_a_coordinator_serves_others_meanwhile() -> None:
    """Rank 0 is alone in a set whose operations its GPU does not reach."""
    others_are_done = threading.Barrier(3)

    def program(rank: int, engine: _native.Engine) -> None:
        alone, others = add_set(engine, 0), add_set(engine, 1, 2)
        if rank == 0:
            stream = Stream(0)
            xs = [GpuArray(ONES.copy(), stream) for _ in range(COUNT)]
            gate = Gate(xs[0], 1.0)
            handles = [gpu_submit(engine, f"x{i}", x, alone, postscale=2.0) for i, x in enumerate(xs)]
            try:
                others_are_done.wait(30)
            finally:
                gate.open()
            assert gpu_values(engine, handles[0], xs[0]).tolist() == [4.0] * 8
            assert gpu_values(engine, handles[-1], xs[-1]).tolist() == [2.0] * 8
        else:
            time.sleep(0.3)
            for step in range(20):
                assert gpu_allreduce(engine, f"y{step}", ONES, rank, others).tolist() == [2.0] * 8
                assert allreduce(engine, f"z{step}", ONES, others).tolist() == [2.0] * 8
            others_are_done.wait(30)
        assert gpu_allreduce(engine, "all", ONES, rank).tolist() == [3.0] * 8

    on_ranks(3, program, settings=settings_for("nccl"))


def test_an_end_comes_after_all_of_it() -> None:
    def program(rank: int, engine: _native.Engine) -> list[GpuArray]:
        stream = Stream(rank)
        xs = [GpuArray(ONES.copy(), stream) for _ in range(COUNT)]
        gate = Gate(xs[0], 1.0)
        handles = [gpu_submit(engine, f"x{i}", x, postscale=0.5) for i, x in enumerate(xs)]
        gate.open()
        for handle in handles:
            engine.wait(handle).order(stream.number)
        return xs  # shutdown() comes next

    for xs in on_ranks(2, program, settings=settings_for("nccl")):
        assert [x.numpy()[0] for x in xs] == [2.0] + [1.0] * (COUNT - 1)
