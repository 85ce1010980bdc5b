"""Random programs of collectives with ranks as threads: no rank hangs, and results equal NumPy's."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from ways import Case, cases

CASES = int(os.environ.get("HOROVOD_TEST_CASES", "150"))  # for each number of ranks


@pytest.mark.timeout(60 + 2 * CASES)
@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_random_programs(size: int) -> None:
    @settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=cases(size))
    def run(case: Case) -> None:
        case.run()

    run()
