"""What a report says of compression's price and gain: no more than seeds and bytes allow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lab_samples import PARAMETERS, sample_environment, sample_host, sample_runs

from horovod.lab.report import explanation, summary
from horovod.lab.report.names import Names
from horovod.lab.report.words import LANGUAGES, Words
from horovod.lab.results import table
from horovod.lab.runs import Run

HERE = Path("/lab")
ROOMY = sample_environment(sample_host(cores=64))
TITLE = "pay_title"
BASE = (0.10, 0.05)  # seconds of a step without compression, and of waiting in it


def summarised(runs: Sequence[Run], language: str = "en") -> str:
    rows, words = table(runs), Words(language)
    return " ".join(summary.sentences(rows, ROOMY, Names(rows, words), words))


def explained(runs: Sequence[Run], language: str = "en") -> str:
    """Sentences on whether compression pays."""
    rows, words = table(runs), Words(language)
    found = explanation.sections(rows, ROOMY, [], Names(rows, words), words)
    return next(" ".join(section.sentences) for section in found if section.title == words(TITLE))


def pair(
    step: float, wait: float, seeds: int = 1, change: Callable[[Run], Run] = lambda run: run
) -> list[Run]:
    """A serial run, one of two ranks without compression as `BASE`, and one with bit8 as told."""

    def made(run: Run) -> Run:
        seconds, waited = (step, wait) if run.plan.compression == "bit8" else BASE
        steps = len(run.step_seconds)
        run = replace(run, step_seconds=(seconds,) * steps, step_waits=(waited,) * steps)
        return change(run) if run.plan.compression == "bit8" else run

    return [made(run) for run in sample_runs(HERE, ("none", "bit8"), (1, 2), seeds)]


def sending(times: float) -> Callable[[Run], Run]:
    """As many bytes as two uncompressed ranks of the sample send, `times` over."""
    return lambda run: replace(run, bytes_sent=round(times * 4 * PARAMETERS * len(run.step_seconds)))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("step", [0.05, 0.10, 0.15])
def test_with_one_seed_nothing_is_clear(step: float, language: str) -> None:
    runs = pair(step, 0.05)
    for said in (summarised(runs, language), explained(runs, language)):
        assert Words(language)("times_one_seed") in said
        assert "clear" not in said
        assert "明显" not in said
    several = pair(step, 0.05, seeds=2)
    for said in (summarised(several, language), explained(several, language)):
        assert Words(language)("times_one_seed") not in said
        assert "clear" in said or "明显" in said or step == 0.15  # whose verdict needs no such word


def test_one_row_of_one_seed_is_enough_to_claim_less() -> None:
    runs = [run for run in pair(0.05, 0.02, seeds=2) if (run.plan.compression, run.plan.seed) != ("bit8", 2)]
    assert "clearly" not in summarised(runs)
    assert "With one seed" in summarised(runs)
    assert "With one seed" in explained(runs)


def test_the_row_that_paid_is_one_that_clearly_did() -> None:
    """Not one whose mean is lower still, and whose seeds lie far apart."""

    def change(run: Run) -> Run:
        step = {"none": 0.1, "bit16": 0.08, "bit8": 0.11 if run.plan.seed == 1 else 0.03}[
            run.plan.compression
        ]
        return replace(run, step_seconds=(step,) * len(run.step_seconds))

    runs = [change(run) for run in sample_runs(HERE, ranks=(1, 2), seeds=2)]
    assert "Compression paid: bit16 × 2 took 20\N{NO-BREAK SPACE}% less" in summarised(runs)


def test_less_time_is_not_called_faster_by_as_much() -> None:
    assert "26\N{NO-BREAK SPACE}% less time." in explained(pair(0.074, 0.02))
    assert "26\N{NO-BREAK SPACE}% more time." in explained(pair(0.126, 0.02))
    assert "少用 26\N{NO-BREAK SPACE}% 的时间" in explained(pair(0.074, 0.02), "zh")
    assert "多用 26\N{NO-BREAK SPACE}% 的时间" in explained(pair(0.126, 0.02), "zh")


CAUSES = ("cause_transfer", "cause_coding", "cause_not_bytes", "cause_unclear")


@pytest.mark.parametrize(
    ("step", "wait", "cause"),
    [
        (0.05, 0.01, "cause_transfer"),
        (0.15, 0.09, "cause_coding"),
        (0.10, 0.05, "cause_not_bytes"),
        (0.05, 0.09, "cause_unclear"),  # faster, and yet it waits more
        (0.15, 0.01, "cause_unclear"),
        (0.10, 0.09, None),  # more waiting and the same time: neither for a cause nor against one
        (0.05, 0.05, None),
    ],
)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_cause_needs_time_and_waiting_to_agree(
    step: float, wait: float, cause: str | None, language: str
) -> None:
    words = Words(language)
    for seeds, frame in ((1, "cause_one_seed"), (2, "cause")):
        said = explained(pair(step, wait, seeds), language)
        assert [key for key in CAUSES if words(key) in said] == ([cause] if cause else [])
        assert cause in (None, "cause_unclear") or words(frame, cause=words(cause)) in said


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        (1.0, "sends about as many bytes"),
        (0.96, "sends about as many bytes"),
        (0.5, "sends 2.00 times fewer bytes"),
        (2.0, "sends 2.00 times as many bytes"),
    ],
)
def test_bytes_are_called_fewer_where_they_are(times: float, sentence: str) -> None:
    said = explained(pair(0.05, 0.01, change=sending(times)))
    assert sentence in said
    assert ("the transfer was part" in said) == (times == 0.5)  # no cause where no bytes were saved


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("language", LANGUAGES)
def test_bytes_are_called_saved_where_they_were(seeds: int, language: str) -> None:
    words, ending = Words(language), "_one_seed" if seeds == 1 else ""
    said = summarised(pair(0.10, 0.05, seeds, sending(1.0)), language)
    assert words(f"compression_saved_nothing{ending}") in said
    assert "1.00" not in said.replace("1.00 times as fast", "").replace("1.00 倍", "")
    said = summarised(pair(0.10, 0.05, seeds), language)
    assert words(f"compression_did_not_pay{ending}") in said


def test_bytes_beside_none_at_all_have_no_ratio() -> None:
    runs = [replace(run, bytes_sent=0) if run.plan.compression == "none" else run for run in pair(0.05, 0.01)]
    said = explained(runs)
    assert "less time." in said
    assert "bytes" not in said
