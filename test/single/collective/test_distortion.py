"""The end-to-end error of an allreduce depends on the codec and the route, not on the number of ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from ranks import AVERAGE, WORLDS, allreduce, numbers, on_ranks, predictable

from horovod import _native
from horovod.common.numpy_codec import nmse

COUNT = 400_000
# From docs/compression.md, for one quantisation of N(0, 1), with a margin for sampling.
ONCE = {"bit8": 7.5e-4, "int8": 4.35e-5}


def distortion(ranks: int, codec: str, algorithm: str, shares_memory: bool, **options: Any) -> float:
    """|x - x'|^2 / |x|^2 of an average of N(0, 1) over ranks; x' is bit-identical on all of them."""
    native = _native.get_codec(codec, **options)

    def program(rank: int, engine: _native.Engine) -> bytes:
        x = numbers(rank, COUNT, np.float32)
        return allreduce(engine, "x", x, op=AVERAGE, codec=native).tobytes()

    results = on_ranks(ranks, program, shares_memory, predictable(algorithm))
    assert set(results) == {results[0]}
    exact = np.mean([numbers(r, COUNT, np.float32).astype(np.float64) for r in range(ranks)], axis=0)
    return nmse(np.frombuffer(results[0], np.float32), exact)


@pytest.mark.parametrize("shares_memory", WORLDS)
@pytest.mark.parametrize("codec", ["bit8", "int8"])
def test_four_ranks(codec: str, shares_memory: bool) -> None:
    assert distortion(4, codec, "scatter", shares_memory) <= 2 * ONCE[codec]
    assert distortion(4, codec, "gather", shares_memory) <= ONCE[codec]


@pytest.mark.parametrize("codec", ["bit8", "int8"])
@pytest.mark.parametrize("algorithm", ["gather", "scatter"])
def test_the_number_of_ranks_makes_no_difference(codec: str, algorithm: str) -> None:
    # Two ranks scatter only if told to: half of the averages of two codes lie exactly between two others.
    several = (2, 3, 5, 8, 16) if algorithm == "gather" else (3, 4, 5, 8, 16)
    losses = [distortion(ranks, codec, algorithm, shares_memory=True) for ranks in several]
    assert max(losses) < 1.05 * min(losses)
    quantisations = 1 if algorithm == "gather" else 2
    assert max(losses) <= quantisations * ONCE[codec]


def test_int4_with_rotation_and_levels_of_a_gaussian() -> None:
    once = distortion(2, "int4", "gather", shares_memory=True, rotation="hadamard", levels="lloyd")
    assert once <= 1.0e-2
