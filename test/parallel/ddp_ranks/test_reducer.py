"""GroupReducer gives the engine's results for the same gradients, bit for bit, over a process group alone.

test_ddp_emulated_gpu.py runs this with gradients on GPUs, which have the CPU's bits.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from reducer_cases import (
    BY_NCCL,
    CODECS,
    FLOATS,
    SHAPES,
    Doubles,
    Halves,
    Positives,
    added,
    assert_same_bits,
    assert_same_on_all_ranks,
    buckets,
    engines_make,
    gathered_make,
    named,
    new_reducer,
    reduced,
    rounds_make,
)

from horovod.torch.compression import Compression, Rules, resolved
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduce_ops import Average, Sum
from horovod.torch.reduction import Gradient, Reduction


@pytest.fixture(scope="module")
def by_algorithm() -> Iterator[dict[str, GroupReducer]]:
    made = {algorithm: new_reducer(algorithm=algorithm) for algorithm in ("auto", "gather", "scatter")}
    yield made
    for reducer in made.values():
        reducer.close()


@pytest.fixture
def reducer() -> Iterator[GroupReducer]:
    made = new_reducer()
    yield made
    made.close()


@pytest.mark.parametrize("algorithm", ["auto", "gather", "scatter"])
@pytest.mark.parametrize("text", CODECS)
def test_equals_the_engine(
    text: str, algorithm: str, by_algorithm: dict[str, GroupReducer], rank: int, size: int
) -> None:
    if BY_NCCL and (text, algorithm) == ("none", "auto"):
        pytest.skip("NCCL adds in an order of its own")
    if "stochastic" in text:
        by_algorithm = {algorithm: new_reducer(algorithm=algorithm)}  # draws depend on earlier calls
    compressor = named(text)
    for dtype in FLOATS:
        for op in (Average, Sum):
            steps = [buckets(size, dtype=dtype)]
            wanted = engines_make(steps, compressor, op, algorithm)
            if "stochastic" in text and (dtype, op) != (FLOATS[0], Average):
                continue
            got = reduced(by_algorithm[algorithm], steps[0][rank], compressor, op)
            assert_same_bits(got, wanted[0], f"{text} {algorithm} {dtype} {op}")
            assert_same_on_all_ranks(got)
    if "stochastic" in text:
        by_algorithm[algorithm].close()


@pytest.mark.parametrize("text", ["bit8", "int4:rotation=hadamard", "int8:rounding=stochastic"])
def test_feedback_is_the_engines(text: str, rank: int, size: int) -> None:
    reduction = Reduction(Rules("none"))
    reducer = GroupReducer(reduction)
    compressor = named(text + ("," if ":" in text else ":") + "error_feedback=1")
    steps = [buckets(size, step=step) for step in range(4)]
    wanted = engines_make(steps, compressor, Average, "auto", has_feedback=True)
    for step, ranks in enumerate(steps):
        got = reduced(reducer, ranks[rank], compressor)
        assert_same_bits(got, wanted[step], f"{text}, step {step}")
    assert reduction.residuals.nbytes > 0 or size == 1
    reducer.close()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("cast", ["fp16", "bf16"])
def test_casts_are_summed_as_the_engine_does(
    cast: str, dtype: torch.dtype, reducer: GroupReducer, rank: int, size: int
) -> None:
    """The core casts if that makes elements smaller; otherwise torch casts, and the casts are added."""
    ranks = buckets(size, dtype=dtype)
    if dtype in (torch.float32, torch.float64):
        wanted = engines_make([ranks], named(cast), Average, "auto")[0]
    else:
        to = torch.float16 if cast == "fp16" else torch.bfloat16
        small = [[x.to(to) for x in own] for own in ranks]
        wanted = [x.to(dtype) for x in engines_make([small], Compression.none, Average, "auto")[0]]
    if size == 1:
        wanted = ranks[0]  # nothing is sent
    got = reduced(reducer, ranks[rank], named(cast))
    if not BY_NCCL:  # NCCL adds casts in their own width
        assert_same_bits(got, wanted, cast)
    assert_same_on_all_ranks(got)


@pytest.mark.parametrize("op", [Average, Sum])
def test_compressors_of_python(op: int, reducer: GroupReducer, rank: int, size: int) -> None:
    scale = 1 / size if op == Average else 1.0
    powersgd, topk = named("powersgd:rank=2,error_feedback=0"), named("topk:ratio=0.1,error_feedback=0")
    states: dict[int, list[Any]] = {i: [{} for _ in range(size)] for i in range(len(SHAPES))}
    for step in range(3):
        ranks = buckets(size, step=step)
        by_place = list(zip(*ranks, strict=True))
        wanted = {
            "doubles": [(added([x.double() * 2 for x in xs]) * scale / 2).float() for xs in by_place],
            "positives": [(gathered_make(Positives, xs) * scale) for xs in by_place],
            "topk": [(gathered_make(topk, xs) * scale) for xs in by_place],
            "halves": [(added(xs) * scale) for xs in by_place],
            "powersgd": [rounds_make(powersgd, xs, states[i]) * scale for i, xs in enumerate(by_place)],
        }
        compressors = [Doubles, Positives, topk, Halves, powersgd]
        for name, compressor in zip(wanted, compressors, strict=True):
            got = reduced(reducer, ranks[rank], compressor, op, tag=name)
            assert_same_on_all_ranks(got)
            if size == 1:
                assert_same_bits(got, ranks[0], name)
            elif name in ("doubles",):
                for a, b in zip(got, wanted[name], strict=True):
                    torch.testing.assert_close(a, b, rtol=1e-6, atol=0)
            else:
                assert_same_bits(got, wanted[name], f"{name}, step {step}")


def test_a_bucket_of_everything(reducer: GroupReducer, rank: int, size: int) -> None:
    """Each gradient gets the same result as alone, with any other gradients in the bucket."""
    compressors = [
        Compression.bit8, Compression.none, Compression.fp16, named("int8:error_feedback=1"), Positives,
        Doubles, Halves, named("topk:ratio=0.05"), named("powersgd:rank=1"), named("int4:block_size=32"),
        Compression.none, Compression.bit16,
    ]  # fmt: skip
    shapes = [(30 + i, 40) for i in range(len(compressors))]
    alone = new_reducer()
    for step in range(3):
        own = buckets(size, shapes, step=step)[rank]
        own[10] = own[10].double()
        together = reduced(reducer, own, compressors)
        for i, (x, compressor) in enumerate(zip(own, compressors, strict=True)):
            by_itself = x.clone()
            alone.start([Gradient(f"g{i}", by_itself, resolved(compressor))]).wait()
            assert_same_bits([together[i]], [by_itself], f"{compressor}, step {step}")
        assert_same_on_all_ranks(together)
    alone.close()


def test_integers_travel_as_they_are(reducer: GroupReducer, rank: int, size: int) -> None:
    for text in ("bit8", "topk", "powersgd", "none", "fp16"):
        x = torch.arange(5) * 10**12 + rank
        reducer.start([Gradient("count", x, named(text))], Sum).wait()
        assert x.tolist() == [i * 10**12 * size + size * (size - 1) // 2 for i in range(5)]
        small = torch.tensor(rank, dtype=torch.uint8)
        reducer.start([Gradient("small", small, named(text))], Sum).wait()
        assert small == size * (size - 1) // 2


def test_many_buckets_under_way(reducer: GroupReducer, rank: int, size: int) -> None:
    """Ranks start them at different times, and wait for them in another order."""
    compressors = [Compression.bit8, Positives, Halves, named("int4"), Compression.none, named("topk")]
    sizes = [(1 + i * 37 % 11, 1 + 173 * i % 400) for i in range(40)]
    ranks = buckets(size, sizes)
    one_by_one = new_reducer()
    wanted = []
    for i, x in enumerate(ranks[rank]):
        wanted.append(x.clone())
        one_by_one.start([Gradient(f"g{i}", wanted[-1], resolved(compressors[i % 6]))]).wait()
    one_by_one.close()
    dice = random.Random(rank)
    copies = [x.clone() for x in ranks[rank]]
    futures = []
    for i, copy in enumerate(copies):
        time.sleep(dice.random() * 0.004)
        futures.append(reducer.start([Gradient(f"g{i}", copy, resolved(compressors[i % 6]))]))
    for i in dice.sample(range(40), 40):
        futures[i].wait()
        assert_same_bits([copies[i]], [wanted[i]], f"bucket {i}")


def test_the_scripts_own_collectives_do_not_mix_with_it(reducer: GroupReducer, rank: int, size: int) -> None:
    x = torch.full((300, 200), float(rank))
    for i in range(10):
        own = x.clone()
        future = reducer.start([Gradient("x", own, resolved(Compression.int8))])
        if i % 2 == rank % 2:
            future.wait()
        total = torch.tensor([1.0])
        dist.all_reduce(total)
        assert total == size
        future.wait()
        assert torch.all(own == own[0, 0])
