"""Random programs of collectives with ranks as threads: no hang, and nothing but what NumPy says."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import Program, Run, programs
from ranks import on_ranks, predictable

from horovod import _native

CASES = int(os.environ.get("HOROVOD_TEST_CASES", "150"))  # for each number of ranks
LAYOUTS = ["one host", "messages only", "two hosts", "a ring"]


@pytest.mark.timeout(60 + 2 * CASES)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_random_programs(size: int) -> None:
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(program=programs(size), layout=st.sampled_from(LAYOUTS))
    def run(program: Program, layout: str) -> None:
        hosts = [rank % 2 for rank in range(size)] if layout == "two hosts" else []

        def of_rank(rank: int, engine: _native.Engine) -> None:
            Run(program, rank, engine).run()

        options = predictable("ring" if layout == "a ring" else "auto")
        on_ranks(size, of_rank, layout in ("one host", "two hosts"), options, hosts=hosts)

    run()
