"""Random programs of collectives with ranks as processes; see test/single/support/programs.py.

Every rank draws the same programs from the same seed. After each program ranks agree on whether it succeeded,
so that no rank waits for one that found an error.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import horovod.torch as hvd
from horovod.common.basics import basics

sys.path.append(str(Path(__file__).parents[2] / "single" / "support"))

from programs import Program, Run, programs

CASES = 400


@pytest.mark.timeout(300)
def test_random_programs(rank: int, size: int) -> None:
    @settings(
        max_examples=CASES,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(program=programs(size))
    def run(program: Program) -> None:
        mistake = ""
        try:
            Run(program, rank, basics.member().engine).run()
        except Exception:
            mistake = traceback.format_exc()
        failed = hvd.allreduce(torch.tensor(float(bool(mistake))), op=hvd.Sum, name="failed")
        assert failed == 0, f"{int(failed)} ranks failed; this one: {mistake or 'did not'}"

    run()
