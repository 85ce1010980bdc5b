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


DRAWN = (
    "optimizers",
    "kind",
    "amp",
    "change",
    "op",
    "compression",
    "wait",
    "trunk",
    "passes_per_step",
    "unused",
)


def test_what_is_drawn_is_worth_running() -> None:
    """Most scripts are compared with one process, and all that can go wrong is drawn."""
    programs = [drawn(seed, ranks_of(seed)) for seed in range(400)]
    assert sum(program.mirrored() for program in programs) > 200
    traits = {trait for program in programs for trait in program.traits()}
    assert len(traits) == 13
    untroubled = [program for program in programs if not program.traits()]
    for of in DRAWN:
        everywhere = {getattr(program, of) for program in programs}
        assert len(everywhere) > 1, of
    assert len(untroubled) > 80
    steps = [step for program in programs for step in program.steps]
    assert any(step.skipped for step in steps) and any(step.resumes for step in steps)
    assert any(program.joined() for program in programs) and any(program.closure for program in programs)
    assert programs == [drawn(seed, ranks_of(seed)) for seed in range(400)], "a seed is all that is needed"
