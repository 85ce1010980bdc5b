"""GroupReducer with tensors of a GPU, or of an emulated one: the bits of the CPU.

In ranks without GPUs this is skipped; test_ddp_emulated_gpu.py runs it with emulated ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from reducer_cases import (
    Doubles,
    Halves,
    assert_same_bits,
    assert_same_on_all_ranks,
    buckets,
    engines_make,
    named,
    reduced,
)

from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Average, Sum

pytestmark = pytest.mark.skipif(
    "HOROVOD_TEST_EMULATED_GPU" not in os.environ, reason="there is no GPU, nor an emulated one"
)
BY_HOST = os.environ.get("HOROVOD_GPU_TRANSPORT") == "host"  # which adds slices, whatever is asked for
SHAPES = ((40, 50), (7,), (1025,), (0, 4), (33, 40))


@pytest.fixture
def reducer() -> Iterator[GroupReducer]:
    made = GroupReducer(error_feedback=True)
    yield made
    made.close()


@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
@pytest.mark.parametrize("text", ["none", "bit16", "bit8", "int8:block_size=64", "int4:rotation=hadamard"])
def test_equals_the_engine_on_the_cpu(text: str, algorithm: str, rank: int, size: int) -> None:
    reducer = GroupReducer(algorithm=algorithm)
    taken = "scatter" if BY_HOST else algorithm
    for dtype in (torch.float32, torch.bfloat16):
        for op in (Average, Sum):
            ranks = buckets(size, SHAPES, dtype)
            wanted = engines_make([ranks], named(text), op, taken)[0]
            assert_same_bits(reduced(reducer, ranks[rank], named(text), op), wanted, f"{text} {dtype} {op}")
    reducer.close()


def test_feedback_and_random_numbers(reducer: GroupReducer, rank: int, size: int) -> None:
    compressor = named("bit8:rounding=stochastic,error_feedback=1")
    steps = [buckets(size, SHAPES, step=step) for step in range(3)]
    wanted = engines_make(steps, compressor, Average, "scatter" if BY_HOST else "auto", has_feedback=True)
    for step, ranks in enumerate(steps):
        assert_same_bits(reduced(reducer, ranks[rank], compressor), wanted[step], f"step {step}")


def test_what_kernels_do_not_sum(reducer: GroupReducer, rank: int, size: int) -> None:
    """float64 goes by the host, which adds slices; integers travel as they are, with a codec too."""
    doubles = buckets(size, SHAPES, torch.float64)
    for text in ("none", "bit8"):
        wanted = engines_make([doubles], named(text), Average, "scatter")[0]
        assert_same_bits(reduced(reducer, doubles[rank], named(text)), wanted, text)
    counts = [torch.arange(5) - 3 * rank, torch.tensor(rank, dtype=torch.uint8)]
    total = size * (size - 1) // 2
    added, small = reduced(reducer, counts, named("bit8"), Sum)
    assert added.tolist() == [i * size - 3 * total for i in range(5)] and small == total


def test_compressors_of_python(reducer: GroupReducer, rank: int, size: int) -> None:
    compressors = [Doubles, Halves, *map(named, ("topk:k=20", "powersgd:rank=1", "fp16", "int8"))]
    shapes = [(30 + i, 40) for i in range(len(compressors))]
    for step in range(2):
        own = buckets(size, shapes, step=step)[rank]
        together = reduced(reducer, own, compressors)
        assert_same_on_all_ranks(together)
        assert all(not torch.equal(a, b) for a, b in zip(together, own, strict=True))
