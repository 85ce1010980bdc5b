"""The hierarchical route: ranks as threads, arranged as hosts that share no memory with each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import oracle
import pytest
from ranks import (
    AVERAGE,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    SUM,
    add_set,
    allreduce,
    numbers,
    on_ranks,
    predictable,
    tensor,
)
from refusals import refused

from horovod import _native
from horovod.common.exceptions import LostRank

# The number of each rank's host.
ARRANGEMENTS = [
    pytest.param([0, 1, 0, 1], id="2x2"),
    pytest.param([0, 0, 0, 1, 1, 1], id="2x3"),
    pytest.param([0, 0, 1, 1, 2, 2], id="3x2"),
    pytest.param([0, 1, 1, 1], id="1+3"),
    pytest.param([0, 0, 1], id="2+1"),
    pytest.param([0, 0, 1, 1, 1], id="2+3"),
    pytest.param([0, 0, 0, 1, 1, 2, 2], id="3+2+2"),
]


def on_hosts(hosts: list[int], program: Any) -> list[Any]:
    return on_ranks(len(hosts), program, settings=predictable("hierarchical"), hosts=hosts)


@pytest.mark.parametrize("hosts", ARRANGEMENTS)
class TestAgainstTheOracle:
    @pytest.mark.parametrize("op", [AVERAGE, SUM, MIN, MAX, PRODUCT])
    def test_every_dtype_and_op(self, hosts: list[int], op: int) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name, (_, dtype) in DTYPES.items():
                if name == "bool":
                    continue
                for count in (0, 1, 1000, 70_001):
                    xs = [numbers(r, count, dtype) for r in range(len(hosts))]
                    got = allreduce(engine, name, xs[rank], op=op)
                    want = oracle.hierarchical_allreduce(xs, hosts, "", op)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{count}, rank {rank}")

        on_hosts(hosts, program)

    def test_scale_factors(self, hosts: list[int]) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name, (_, dtype) in DTYPES.items():
                if name == "bool":
                    continue
                for op in (AVERAGE, SUM):
                    xs = [numbers(r, 20_000, dtype) for r in range(len(hosts))]
                    got = allreduce(engine, name, xs[rank], op=op, prescale=0.75, postscale=2.5)
                    want = oracle.hierarchical_allreduce(xs, hosts, "", op, 0.75, 2.5)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name}, rank {rank}")

        on_hosts(hosts, program)

    @pytest.mark.parametrize("codec", ["bit16", "bit8"])
    def test_compressed_across_hosts_only(self, hosts: list[int], codec: str) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for name in ("float16", "bfloat16", "float32", "float64"):
                for count in (1, 127, 128, 5000, 300_001):
                    xs = [numbers(r, count, DTYPES[name][1]) for r in range(len(hosts))]
                    got = allreduce(
                        engine, name, xs[rank], op=AVERAGE, prescale=0.5, codec=_native.get_codec(codec)
                    )
                    want = oracle.hierarchical_allreduce(xs, hosts, codec, AVERAGE, 0.5)
                    np.testing.assert_array_equal(got, want, err_msg=f"{name} x{count}, rank {rank}")

        on_hosts(hosts, program)

    @pytest.mark.parametrize(("codec", "dtype"), [("", np.float16), ("bit16", np.float32)])
    def test_averages_of_large_numbers_do_not_overflow(
        self, hosts: list[int], codec: str, dtype: Any
    ) -> None:
        """Where a host's sum would be beyond what a half can hold, its share of the average is not."""

        def program(rank: int, engine: _native.Engine) -> None:
            native = _native.get_codec(codec) if codec else None
            x = np.full(5000, 40_000, dtype)
            got = allreduce(engine, "average", x, op=AVERAGE, codec=native)
            np.testing.assert_allclose(got, x, rtol=2e-3)
            got = allreduce(engine, "sum", x, op=SUM, postscale=0.1, codec=native)
            np.testing.assert_allclose(got, np.full(5000, 4000.0 * len(hosts)), rtol=2e-3)

        on_hosts(hosts, program)

    @pytest.mark.parametrize("codec", ["", "bit8"])
    def test_a_group_in_place_larger_than_the_window(self, hosts: list[int], codec: str) -> None:
        """Blocks never straddle two tensors; steps go around all slots of the window several times."""
        shapes = [(3,), (), (0, 5), (127,), (129, 3), (1,), (2_500_000,), (2, 2, 2)]

        def program(rank: int, engine: _native.Engine) -> None:
            xs = [
                [numbers(r, int(np.prod(shape)), np.float32, i).reshape(shape) for r in range(len(hosts))]
                for i, shape in enumerate(shapes)
            ]
            mine = [x[rank].copy() for x in xs]
            native = _native.get_codec(codec) if codec else None
            engine.wait(engine.allreduce("group", [tensor(x) for x in mine], _native.Reduction(codec=native)))
            for x, got in zip(xs, mine, strict=True):
                want = oracle.hierarchical_allreduce(x, hosts, codec)
                np.testing.assert_array_equal(got, want, err_msg=f"shape {got.shape}, rank {rank}")

        on_hosts(hosts, program)


def test_an_integer_average_is_exact() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = np.array([7, -7, 49, rank, 2**53 + 1, -rank], np.int64)
        assert allreduce(engine, "x", x, op=AVERAGE).tolist() == [7, -7, 49, 1, 2**53 + 1, -1]

    on_hosts([0, 0, 1, 1], program)


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
    """Their sums are those of rank order, and quantised for each rank."""

    def program(rank: int, engine: _native.Engine) -> None:
        number = add_set(engine, 0, 1, 2)
        if rank != 3:
            xs = [numbers(r, 5000, np.float32) for r in range(3)]
            got = allreduce(engine, "x", xs[rank], number, codec=_native.get_codec("bit8"))
            np.testing.assert_array_equal(got, oracle.compressed_allreduce(xs, "bit8"))
        allreduce(engine, "y", np.ones(1, np.float32))  # nobody leaves before the others

    on_hosts([0, 0, 1, 1], program)


def test_a_rank_that_gives_up_in_the_middle_is_noticed_by_all() -> None:
    worlds = _native.local_worlds(4, hosts=[0, 0, 1, 1])
    engines = [
        _native.Engine(world, predictable("hierarchical"), rank != 3) for rank, world in enumerate(worlds)
    ]
    xs = [np.ones(4_000_000, np.float32) for _ in engines]
    handles = [
        engine.allreduce("x", [tensor(x)], _native.Reduction()) for engine, x in zip(engines, xs, strict=True)
    ]
    engines[3].step(1.0)  # asks, and goes no further
    worlds[3].abandon()
    for engine, handle in zip(engines[:3], handles[:3], strict=True):
        with refused(LostRank):
            engine.wait(handle)
    for engine in engines:
        engine.shutdown()
