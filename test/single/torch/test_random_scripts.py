"""Random training scripts with ranks as threads: no rank hangs, all agree, and results match one process.

python test/single/support/random_scripts.py --seed 17 --ranks 3   shows all details of one script
"""

from __future__ import annotations

import os

import pytest
from random_scripts import fault_of, in_threads, ranks_of, report
from random_scripts_program import Program, drawn

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


@pytest.fixture(scope="module")
def programs() -> list[Program]:
    return [drawn(seed, ranks_of(seed)) for seed in range(400)]


def test_all_that_can_go_wrong_is_drawn(programs: list[Program]) -> None:
    traits = {trait for program in programs for trait in program.traits()}
    assert len(traits) == 13, sorted(traits)
    for of in DRAWN:
        assert len({getattr(program, of) for program in programs}) > 1, of
    steps = [step for program in programs for step in program.steps]
    assert any(step.skipped for step in steps) and any(step.resumes for step in steps)
    assert any(program.joined() for program in programs) and any(program.closure for program in programs)


def test_many_scripts_are_compared_with_one_process_and_some_are_plain(programs: list[Program]) -> None:
    assert sum(program.mirrored() for program in programs) > 200
    assert sum(not program.traits() for program in programs) > 80
    assert programs[17] == drawn(17, ranks_of(17)), "a seed is all that is needed"
