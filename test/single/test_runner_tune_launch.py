"""``horovodrun --tune-launch``: what is tried, how it is compared, and what the script says of its steps."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from horovod.runner import tune_launch
from horovod.runner.errors import LaunchError
from horovod.runner.tune_launch import Candidate, candidates, seconds_in, tune, without_own


def test_what_the_user_has_decided_is_not_tried() -> None:
    assert [each.name for each in candidates({}, "libjemalloc.so.2")] == [
        "--bind auto", "malloc keeps large blocks", "malloc uses huge pages", "jemalloc",
    ]  # fmt: skip
    assert (
        candidates({"HOROVOD_BIND": "auto", "GLIBC_TUNABLES": "", "LD_PRELOAD": ""}, "libjemalloc.so.2") == []
    )


def test_what_is_faster_is_kept_for_the_next() -> None:
    asked: list[dict[str, str]] = []
    seconds = {"": 0.2, "A": 0.1, "B": 0.2, "AB": 0.11}

    def measure(variables: Mapping[str, str]) -> float:
        asked.append(dict(variables))
        return seconds["".join(sorted(variables))] * (1 + 0.001 * (len(asked) % 3))

    kept, table = tune([Candidate("first", {"A": "1"}), Candidate("second", {"B": "1"})], measure)
    assert kept == {"A": "1"} and len(asked) == 12 and asked[-1] == {"A": "1", "B": "1"}
    assert "kept" in table.splitlines()[1] and table.splitlines()[2].endswith("-")


def test_the_line_of_a_rank() -> None:
    assert seconds_in("[0]<stdout>:horovod: a step takes 0.012300 s, the median of 30") == 0.0123
    assert seconds_in("a step takes long") is None


def test_the_words_of_the_job() -> None:
    words = ["--tune-launch", "-np", "2", "--tune-launch-steps", "9", "python", "x.py", "--tune-launch"]
    assert without_own(words, 3) == ["-np", "2", "python", "x.py", "--tune-launch"]
    assert without_own(["--tune-launch-steps=9", "--tune-launch", "ls"], 1) == ["ls"]


@pytest.mark.parametrize("script", ["import time; time.sleep(60)", "print('done')"])
def test_a_script_that_says_nothing(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune_launch, "_LONGEST_JOB", 1.0)
    with pytest.raises(LaunchError, match="has not made 3 steps"):
        tune_launch._measured(["-np", "1", sys.executable, "-c", script], {}, 3)
