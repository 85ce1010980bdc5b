"""Properties of every route of allreduce: values, edge sizes, and failures during an operation."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ranks import AVERAGE, allreduce, numbers, on_ranks, predictable, tensor

from horovod import _native
from horovod.common.exceptions import HorovodInternalError, LostRank, ShutDown, lost_ranks

# Whether ranks of a host share memory, and the number of each rank's host.
LAYOUTS: dict[str, tuple[bool, list[int]]] = {
    "window": (True, []),
    "exchange": (False, []),
    "hierarchy": (True, [0, 1, 0, 1, 1]),
}
EDGE = 4096  # elements of a run; blocks have 128


def want(xs: list[Any], layout: str, codec: str, op: int) -> Any:
    if layout == "hierarchy":
        return oracle.hierarchical_allreduce(xs, LAYOUTS[layout][1], codec, op)
    return oracle.compressed_allreduce(xs, codec, op=op) if codec else oracle.allreduce(xs, op)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", ["", "bit8"])
def test_random_groups_of_tensors(layout: str, codec: str) -> None:
    """Sizes around the borders of blocks, runs and steps; every rank gets the oracle's bits."""
    size = 5
    near = st.builds(
        lambda k, unit, off: max(0, k * unit + off),
        st.integers(0, 3),
        st.sampled_from([1, 128, EDGE, 12 * EDGE]),
        st.integers(-2, 2),
    )
    cases = st.lists(st.lists(near, min_size=1, max_size=4), min_size=5, max_size=5)
    native = _native.get_codec(codec) if codec else None
    shares_memory, hosts = LAYOUTS[layout]

    @settings(max_examples=2, deadline=None, suppress_health_check=list(HealthCheck))
    @given(cases=cases, seed=st.integers(0, 1000))
    def run(cases: list[list[int]], seed: int) -> None:
        given = [[[numbers(r, n, np.float32, seed) for r in range(size)] for n in counts] for counts in cases]
        wanted = [[want(xs, layout, codec, AVERAGE) for xs in group] for group in given]

        def program(rank: int, engine: _native.Engine) -> None:
            for i, group in enumerate(given):
                mine = [xs[rank].copy() for xs in group]
                reduction = _native.Reduction(AVERAGE, codec=native)
                engine.wait(engine.allreduce(f"{i}", [tensor(x) for x in mine], reduction))
                for got, x in zip(mine, wanted[i], strict=True):
                    np.testing.assert_array_equal(got, x, err_msg=f"{cases[i]}")

        on_ranks(size, program, shares_memory, hosts=hosts)

    run()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tensor_larger_than_the_fusion_buffer(layout: str) -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        xs = [numbers(r, 300_000, np.float32) for r in range(5)]
        got = allreduce(engine, "x", xs[rank], codec=_native.get_codec("bit8"))
        np.testing.assert_array_equal(got, want(xs, layout, "bit8", 1))

    options = predictable()
    options.fusion_threshold = 1000
    shares_memory, hosts = LAYOUTS[layout]
    on_ranks(5, program, shares_memory, options, hosts=hosts)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("codec", ["", "bit8"])
def test_a_rank_that_gives_up_in_the_middle_is_noticed_by_all(layout: str, codec: str) -> None:
    """Allreduces are in progress; each rank frees their memory as soon as it gets the error."""
    shares_memory, hosts = LAYOUTS[layout]
    worlds = _native.local_worlds(5, shares_memory, hosts)
    under_way = threading.Barrier(6, timeout=30)
    errors: list[HorovodInternalError] = []

    def body(rank: int) -> None:
        engine = _native.Engine(worlds[rank], predictable())
        native = _native.get_codec(codec) if codec else None
        allreduce(engine, "small", np.ones(8, np.float32))
        under_way.wait()
        try:
            while True:
                allreduce(engine, "large", np.ones(5_000_000, np.float32), codec=native)
        except HorovodInternalError as error:
            errors.append(error)
        engine.shutdown()

    threads = [threading.Thread(target=body, args=(rank,), daemon=True) for rank in range(5)]
    for thread in threads:
        thread.start()
    under_way.wait()
    worlds[4].abandon()
    for thread in threads:
        thread.join(50)
    assert not any(thread.is_alive() for thread in threads), "a rank hangs"
    assert len(errors) == 5 and any(lost_ranks(error) == (4,) for error in errors), errors
    assert all(isinstance(error, LostRank | ShutDown) for error in errors), errors
