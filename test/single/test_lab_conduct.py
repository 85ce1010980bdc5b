"""Doing runs, and doing again those that other programs disturbed, without starting any."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_logs import plan, records, written

from horovod.lab import conduct, folders
from horovod.lab.load import Load
from horovod.lab.runs import Plan

PLANS = [plan(2, name, seed) for name in ("none", "bit8") for seed in (1, 2)]


class Said:
    """A display that keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextlib.contextmanager
    def run(self, title: str, _: Plan) -> Iterator[Any]:
        self.say(title)
        yield type("Nobody", (), {"stepped": None})()


Outcome = float | BaseException


@pytest.fixture
def doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], list[str]]]:
    """Does PLANS. outcomes: of the runs in the order in which they are done, what others take meanwhile."""

    def do(outcomes: list[Outcome], repeats: int = 0) -> tuple[list[str], list[str]]:
        left = list(outcomes)

        def run(out: Path, of: Plan, *_: Any) -> None:
            outcome = left.pop(0)
            if isinstance(outcome, BaseException):
                folders.prepare(out, of)
                raise outcome
            written(out, of, records(of), Load(0.0, outcome, 0.0))

        monkeypatch.setattr(conduct, "_run", run)
        said = Said()
        try:
            failed = conduct.conduct(tmp_path, PLANS, said, repeats)
        except KeyboardInterrupt:
            failed = ["stopped"]
        assert not left
        return failed, said.lines

    return do


def shares(out: Path) -> dict[str, float]:
    """What others took during the run in each folder."""
    found = {}
    for path in sorted((out / "runs").iterdir()):
        load = folders.load_in(path)
        assert load is not None
        found[
            path.name.replace("-epochs2", "").partition("-train")[0] + path.name[-2:] * ("~" in path.name)
        ] = load.during
    return found


def test_disturbed_runs_are_named(doing: Any, tmp_path: Path) -> None:
    failed, said = doing([0.01, 0.2, 0.3, 0.04])
    assert failed == []
    assert shares(tmp_path) == {
        "np2-none-seed1": 0.01,
        "np2-bit8-seed1": 0.2,
        "np2-bit8-seed2": 0.3,
        "np2-none-seed2": 0.04,
    }
    assert sum("disturbed: others took" in line for line in said) == 2
    assert "other programs disturbed 2 of 4 runs: np2-bit8-seed1" in said[-1]
    assert "--repeat-disturbed" in said[-1]


def test_they_are_done_again(doing: Any, tmp_path: Path) -> None:
    """The run that others disturbed less counts, and the other one is kept."""
    failed, said = doing([0.01, 0.2, 0.3, 0.04, 0.02, 0.4], repeats=1)
    assert failed == []
    found = shares(tmp_path)
    assert (found["np2-bit8-seed1"], found["np2-bit8-seed1~1"]) == (0.02, 0.2)
    assert (found["np2-bit8-seed2"], found["np2-bit8-seed2~1"]) == (0.3, 0.4)
    assert [line for line in said if "again:" in line and line.startswith("run")] == [
        line for line in said if line.startswith(("run 1 of 2 again: np2-bit8-seed1", "run 2 of 2 again"))
    ]
    assert "disturbed 1 of 4 runs: np2-bit8-seed2" in said[-1]
    failed, said = doing([0.0], repeats=3)  # the lab once more: only what is disturbed, until nothing is
    assert "4 of 4 runs are done already" in said[0]
    assert shares(tmp_path)["np2-bit8-seed2"] == 0.0
    assert not any("other programs disturbed" in line for line in said)


@pytest.mark.parametrize("ending", [conduct.RunFailed("it ended with exit code 1"), KeyboardInterrupt()])
def test_a_repetition_that_does_not_end_changes_nothing(
    ending: BaseException, doing: Any, tmp_path: Path
) -> None:
    failed, _ = doing([0.01, 0.2, 0.01, 0.01, ending], repeats=1)
    assert failed == (["stopped"] if isinstance(ending, KeyboardInterrupt) else [])
    assert shares(tmp_path)["np2-bit8-seed1"] == 0.2
    assert len(shares(tmp_path)) == 4
    assert all(folders.is_finished(tmp_path, each) for each in PLANS)


def test_a_run_that_failed_is_not_repeated_as_disturbed(doing: Any, tmp_path: Path) -> None:
    failed, said = doing([0.01, conduct.RunFailed("no"), 0.01, 0.01], repeats=2)
    assert len(failed) == 1 and failed[0].startswith("np2-bit8-seed1")
    assert sum("FAILED" in line for line in said) == 1
