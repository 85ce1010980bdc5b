"""Reports on little data: few runs, equal figures, diverged training."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from lab_samples import diverged, sample_environment, sample_runs
from report_pages import ACCURACY, HERE, TableReader, explained, says, summarised, warned

from horovod.lab.report import LANGUAGES, plots, write
from horovod.lab.report.document import Picture
from horovod.lab.report.words import Names
from horovod.lab.results import table
from horovod.lab.runs import Run


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Omit plots, which take seconds."""
    monkeypatch.setattr(plots, "picture", lambda name, _: Picture(name, lambda *_: ""))


def pages(folder: Path, runs: Sequence[Run], language: str) -> tuple[str, str]:
    """HTML and Markdown."""
    write(folder, runs, table(runs), sample_environment(), language)
    html, text = ((folder / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    return html, text


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_serial_run_alone_has_no_empty_heading(tmp_path: Path, language: str) -> None:
    heading = {"en": "Comparison and explanation", "zh": "对比与分析"}[language]
    for page in pages(tmp_path, sample_runs(tmp_path, ranks=(1,)), language):
        assert heading not in page
        assert "explanation-heading" not in page
    for page in pages(tmp_path, sample_runs(tmp_path), language):
        assert heading in page


@pytest.mark.parametrize("seeds", [1, 2])
def test_equal_accuracies_are_called_equal(seeds: int) -> None:
    runs = [
        replace(run, epochs=(*run.epochs[:-1], replace(run.epochs[-1], accuracy=0.97)))
        for run in sample_runs(HERE, seeds=seeds)
    ]
    accuracy = explained(runs, ACCURACY)
    assert says(summarised(runs), "accuracy_equal", high="97.00\N{NO-BREAK SPACE}%")
    assert says(accuracy, "accuracy_unchanged") and not says(accuracy, "seeds_unknown")
    assert says(accuracy, "fewer_updates_equal", row="none × 4", steps=117, alone=470)
    assert "0.00" not in accuracy


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_ratio_of_nothing_sent_says_so(tmp_path: Path, language: str) -> None:
    label = Names([], language).label
    runs = [replace(run, bytes_sent=0) for run in sample_runs(tmp_path)]
    html, text = pages(tmp_path, runs, language)
    assert TableReader(html).tables["results"][2][9][0] == "–"
    for page in (html, text):
        assert label("nothing_sent") in page
        assert label("no_uncompressed") not in page
    only = [run for run in sample_runs(tmp_path) if run.plan.compression != "none" or run.plan.ranks == 1]
    for page in pages(tmp_path, only, language):
        assert label("nothing_sent") not in page
        assert label("no_uncompressed") in page


@pytest.mark.parametrize("value", [math.inf, math.nan])
@pytest.mark.parametrize("part", ["step_losses", "train_loss", "test_loss"])
def test_a_training_that_diverged_is_a_warning(part: str, value: float) -> None:
    runs = sample_runs(HERE)
    last = runs[-1]
    if part == "step_losses":
        runs[-1] = replace(last, step_losses=(*last.step_losses[:-1], value))
    else:
        runs[-1] = replace(last, epochs=(replace(last.epochs[0], **{part: value}),))
    (warning,) = warned(runs)
    assert says(warning, "warn_diverged", runs=last.folder.name)


@pytest.mark.parametrize("share", [0.5, 0.0])
def test_plots_leave_losses_out_that_are_not_finite(tmp_path: Path, share: float) -> None:
    """Half of each run, or all of it."""
    runs = [diverged(run, share) for run in sample_runs(tmp_path, ("none",), (1, 2), epochs=2)]
    write(tmp_path, runs, table(runs), sample_environment(), "en")
    for path in (tmp_path / "plots").glob("*.svg"):
        source = path.read_text(encoding="utf-8")
        assert not re.search(r' d="[^"]*(?:nan|inf)', source), path.name
        assert len(source) < 200_000
    assert says((tmp_path / "report.md").read_text(encoding="utf-8"), "warn_diverged")


def test_what_stays_of_a_curve_is_what_was_finite(tmp_path: Path) -> None:
    run = sample_runs(tmp_path, ranks=(1,))[0]
    whole = plots.loss_curve(run, is_by_time=False)
    across, up = plots.mean_curve([plots.loss_curve(diverged(run, 0.5), is_by_time=False)])
    half = plots.POINTS // 2
    assert (across, up) == (whole[0][:half], whole[1][:half])
