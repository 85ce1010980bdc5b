"""Ranks that are idle after all others have ended: horovodrun waits --exit-timeout, and ends them."""

import sys
from pathlib import Path

import pytest
from launching import horovodrun

PROGRAM = Path(__file__).with_name("lingering_rank.py")


@pytest.mark.timeout(150)
@pytest.mark.parametrize("how", ["stop", "sleep", "exit"])
def test_a_rank_that_does_nothing_is_ended_and_named(how: str) -> None:
    words = ["--exit-timeout", "2", sys.executable, str(PROGRAM), how]
    job = horovodrun("-np", "2", *words, limit=110)
    said = job.stderr.splitlines()[-1]
    assert job.returncode == 1 and "<0 ends>" in job.stdout, job.stderr
    assert said.startswith("horovodrun: rank 1 on host ") and "--exit-timeout" in said and " 2 s " in said
    assert ("SIGSTOP" in said) == (how == "stop")


@pytest.mark.timeout(150)
def test_a_rank_that_works_on_is_waited_for() -> None:
    words = ["--exit-timeout", "3", sys.executable, str(PROGRAM), "work"]
    job = horovodrun("-np", "2", *words, limit=110)
    assert (job.returncode, job.stderr) == (0, "")
    assert job.stdout.count("ends>") == 2
