"""GroupReducer with tensors that travel in many steps: the engine's bits, whatever else is under way."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from reducer_cases import (
    Doubles,
    Halves,
    Positives,
    assert_same_bits,
    assert_same_on_all_ranks,
    buckets,
    engines_make,
    named,
    reduced,
)

from horovod.torch.compression import Compression, resolved
from horovod.torch.ddp import carried
from horovod.torch.ddp.reducer import Gradient, GroupReducer
from horovod.torch.reduce_ops import Average, Sum

SHAPES = ((330, 100), (7,), (40_001,), (0, 4), (3, 5, 70))


@pytest.fixture(params=["gather", "scatter"])
def algorithm(request: pytest.FixtureRequest) -> str:
    text: str = request.param
    return text


@pytest.fixture
def reducer(algorithm: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[GroupReducer]:
    """Its tensors travel in steps that are as small as can be."""
    monkeypatch.setattr(carried, "STEP_ELEMENTS", 1)
    made = GroupReducer(algorithm=algorithm, error_feedback=True)
    yield made
    made.close()


@pytest.mark.parametrize("text", ["none", "bit16", "bit8:rounding=stochastic", "int4:rotation=hadamard"])
def test_equals_the_engine(text: str, reducer: GroupReducer, algorithm: str, rank: int, size: int) -> None:
    compressor = named(text if text == "none" else text + ("," if ":" in text else ":") + "error_feedback=1")
    steps = [buckets(size, SHAPES, step=step) for step in range(3)]
    wanted = engines_make(steps, compressor, Average, algorithm, has_feedback=text != "none")
    for step, ranks in enumerate(steps):
        got = reduced(reducer, ranks[rank], compressor)
        assert_same_bits(got, wanted[step], f"{text}, step {step}")
        assert_same_on_all_ranks(got)


def test_buckets_of_many_steps_are_under_way_with_others(
    reducer: GroupReducer, algorithm: str, rank: int, size: int
) -> None:
    """Some send nothing before they have heard from the others, between some that have much to send."""
    compressors = [Compression.bit8, Positives, Halves, named("int4"), Compression.none, Doubles]
    shapes = [(1 + 9973 * i % 60_000,) for i in range(30)]
    ranks = buckets(size, shapes)
    one_by_one = GroupReducer(algorithm=algorithm, error_feedback=True)
    wanted = [x.clone() for x in ranks[rank]]
    copies = [x.clone() for x in ranks[rank]]
    for i, x in enumerate(wanted):
        one_by_one.start([Gradient(f"g{i}", x, resolved(compressors[i % 6]))], Sum).wait()
    one_by_one.close()
    futures = [
        reducer.start([Gradient(f"g{i}", x, resolved(compressors[i % 6]))], Sum) for i, x in enumerate(copies)
    ]
    for i in random.Random(rank).sample(range(len(futures)), len(futures)):
        futures[i].wait()
        assert_same_bits([copies[i]], [wanted[i]], f"bucket {i}")


def test_a_mixed_bucket(reducer: GroupReducer, algorithm: str, rank: int, size: int) -> None:
    compressors = [named("bit8"), Compression.none, named("fp16"), Compression.none, named("int4")]
    ranks = buckets(size, SHAPES)
    alone = GroupReducer(algorithm=algorithm, error_feedback=True)
    wanted = [
        reduced(alone, [x], compressor, tag=f"g{i}.")[0]
        for i, (x, compressor) in enumerate(zip(ranks[rank], compressors, strict=True))
    ]
    alone.close()
    assert_same_bits(reduced(reducer, ranks[rank], compressors), wanted)
