"""Random training scripts with ranks as threads: none hangs, ranks stay alike, and as one process would be.

    python test/single/random_scripts.py --seed 17 --ranks 3       one of them, and all there is to know of it
"""

from __future__ import annotations

import os

import pytest
from random_scripts import fault_of, in_threads, ranks_of, report
from random_scripts_program import drawn

CASES = int(os.environ.get("HOROVOD_TEST_CASES", "30"))


@pytest.mark.filterwarnings("ignore")  # of scripts whose gradients are too small to be compressed
@pytest.mark.parametrize("seed", range(CASES))
def test_random_script(seed: int) -> None:
    program = drawn(seed, ranks_of(seed))
    outcomes = in_threads(program)
    fault = fault_of(program, outcomes)
    if fault:
        pytest.fail(report(program, outcomes, fault), pytrace=False)


def test_what_is_drawn_is_worth_running() -> None:
    """Most programs are compared with one process, and all that can go wrong is drawn."""
    programs = [drawn(seed, ranks_of(seed)) for seed in range(400)]
    assert sum(program.mirrored() for program in programs) > 200
    assert len({trait for program in programs for trait in program.traits()}) == 10
    for of in ("optimizers", "kind", "amp", "change", "op", "compression", "wait", "trunk", "passes_per_step"):
        assert min(sum(getattr(p, of) == value for p in programs) for value in {getattr(p, of) for p in programs})
    steps = [step for program in programs for step in program.steps]
    assert any(step.skipped for step in steps) and any(step.resumes for step in steps)
    assert any(program.joined() for program in programs) and any(program.closure for program in programs)
    assert programs == [drawn(seed, ranks_of(seed)) for seed in range(400)], "a seed is all it takes to replay"
