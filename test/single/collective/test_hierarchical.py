"""The hierarchical route, with ranks as threads, arranged as hosts that share no memory with each other.

test_collectives.py compares its results with NumPy's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from ranks import (
    AVERAGE,
    SUM,
    add_set,
    allreduce,
    numbers,
    on_ranks,
    predictable,
)

from horovod import _native


def on_hosts(hosts: list[int], program: Any) -> list[Any]:
    return on_ranks(len(hosts), program, settings=predictable("hierarchical"), hosts=hosts)


@pytest.mark.parametrize(
    "hosts", [[0, 1, 0, 1], [0, 0, 0, 1, 1, 1], [0, 0, 1], [0, 0, 0, 1, 1, 2, 2]], ids=str
)
@pytest.mark.parametrize(("codec", "dtype"), [("", np.float16), ("bit16", np.float32)])
def test_averages_of_large_numbers_do_not_overflow(hosts: list[int], codec: str, dtype: Any) -> None:
    """A host's sum may exceed the range of float16; its share of the average does not."""

    def program(rank: int, engine: _native.Engine) -> None:
        native = _native.get_codec(codec) if codec else None
        x = np.full(5000, 40_000, dtype)
        got = allreduce(engine, "average", x, op=AVERAGE, codec=native)
        np.testing.assert_allclose(got, x, rtol=2e-3)
        got = allreduce(engine, "sum", x, op=SUM, postscale=0.1, codec=native)
        np.testing.assert_allclose(got, np.full(5000, 4000.0 * len(hosts)), rtol=2e-3)

    on_hosts(hosts, program)


def test_what_crosses_is_what_one_rank_for_each_host_would_send() -> None:
    """Each carrier sends its half, encoded: 100,000 codes and a scale for each 128 of them."""
    count = 200_000

    def program(rank: int, engine: _native.Engine) -> int:
        x = numbers(rank, count, np.float32)
        allreduce(engine, "x", x, codec=_native.get_codec("bit8"))
        return engine.counters()["wire_bytes"]

    sent = on_hosts([0, 0, 1, 1], program)
    assert sum(sent[:2]) == sum(sent[2:]) == count + -(-count // 128)


def test_other_process_sets_go_flat() -> None:
    """Their sums are in rank order, quantised for each rank."""

    def program(rank: int, engine: _native.Engine) -> None:
        number = add_set(engine, 0, 1, 2)
        if rank != 3:
            xs = [numbers(r, 5000, np.float32) for r in range(3)]
            got = allreduce(engine, "x", xs[rank], number, codec=_native.get_codec("bit8"))
            np.testing.assert_array_equal(got, oracle.compressed_allreduce(xs, "bit8"))
        allreduce(engine, "y", np.ones(1, np.float32))  # keeps all ranks until the end

    on_hosts([0, 0, 1, 1], program)
