"""Random programs of collectives with ranks as threads: no hang, and nothing but what NumPy says."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import Program, Run, programs
from ranks import on_ranks

CASES = 400  # for each number of ranks


@pytest.mark.timeout(300)
@pytest.mark.parametrize("size", [2, 3, 4])
def test_random_programs(size: int) -> None:
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(program=programs(size), shares_memory=st.booleans())
    def run(program: Program, shares_memory: bool) -> None:
        on_ranks(size, lambda rank, engine: Run(program, rank, engine).run(), shares_memory)

    run()
