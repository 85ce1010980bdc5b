"""A job of hosts with different processors: results do not depend on the instruction set."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from codec_cases import NAMES
from numpy.typing import NDArray
from ranks import (
    ADASUM,
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    allreduce,
    numbers,
    on_ranks,
    predictable,
    tensor,
)

from horovod import _native

LEVELS = _native.simd_levels()
WAYS: dict[str, dict[str, Any]] = {
    "window gather": {"algorithm": "gather"},
    "window scatter": {"algorithm": "scatter"},
    "exchange gather": {"algorithm": "gather", "shares_memory": False},
    "exchange scatter": {"algorithm": "scatter", "shares_memory": False},
    "hierarchical": {"algorithm": "hierarchical", "hosts": [0, 0, 1, 1]},
}


def with_level(algorithm: str, level: str) -> _native.Settings:
    settings = predictable(algorithm)
    settings.simd = level
    return settings


def own_rows(engine: _native.Engine, name: str, x: NDArray[Any], **reduction: Any) -> NDArray[Any]:
    """A blocking reduce-scatter; each of the 4 ranks gets an equal part."""
    out = np.empty(x.size // 4, x.dtype)
    engine.wait(engine.reducescatter(name, [tensor(x, out)], _native.Reduction(**reduction)))
    return out


@pytest.mark.parametrize("way", WAYS)
def test_ranks_of_several_levels_get_the_bytes_of_one(way: str) -> None:
    place = dict(WAYS[way])
    algorithm = place.pop("algorithm")

    def results(levels: list[str]) -> list[bytes]:
        def program(rank: int, engine: _native.Engine) -> bytes:
            pieces = []
            for name, (_, dtype) in DTYPES.items():
                x = numbers(rank, 1500, dtype)
                for op in (AVERAGE, SUM, MIN, MAX, PRODUCT):
                    pieces.append(allreduce(engine, name, x, op=op, prescale=0.3, postscale=1.7))
                pieces.append(own_rows(engine, f"own {name}", x, op=AVERAGE, prescale=0.3, postscale=1.7))
                if name in ("float16", "float32", "float64"):
                    pieces.append(allreduce(engine, name, x, op=ADASUM))
            for name in NAMES:
                codec = _native.codec_named(name, level=levels[rank])
                for dtype in ("float32", "bfloat16"):
                    x = numbers(rank, 1500, DTYPES[dtype][1])
                    pieces.append(allreduce(engine, f"{name} {dtype}", x, codec=codec))
                    pieces.append(own_rows(engine, f"own {name} {dtype}", x, codec=codec))
            return b"".join(piece.tobytes() for piece in pieces)

        settings = [with_level(algorithm, level) for level in levels]
        return on_ranks(4, program, settings=settings, **place)

    mixed = [LEVELS[rank % len(LEVELS)] for rank in range(4)]
    want = results(["baseline"] * 4)
    assert results(mixed) == want
    assert results(mixed[::-1]) == want
