"""The plots are small, have the same bytes for the same runs, and fit beside each other on a page."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from lab_samples import MADE_HOSTS, sample_environment, sample_runs
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle, StepPatch
from matplotlib.text import Annotation
from report_pages import TableReader

from horovod.common.numpy_codec import codec_of_text, named_codec, nmse
from horovod.lab.report import numbers, plots, svg, write
from horovod.lab.report.facts import CodecError, codec_errors
from horovod.lab.report.plots import draw_errors, draw_tuning
from horovod.lab.report.words import Names
from horovod.lab.results import Row, table
from horovod.lab.runs import Run, Trial

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = sample_runs(folder)
    write(folder, runs, table(runs), sample_environment(), "zh")
    return folder


def pictures(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("plots/*.svg"))}


def drawn(folder: Path) -> dict[str, str]:
    """The plots that matplotlib draws."""
    return {name: source for name, source in pictures(folder).items() if name != "topology"}


def test_what_is_drawn(report: Path) -> None:
    assert set(pictures(report)) == {
        *("loss_by_epoch", "loss_by_time", "accuracy_by_epoch", "accuracy_by_time"),
        *("steps", "times", "accuracies", "codecs", "topology"),
    }
    text = (report / "report.md").read_text(encoding="utf-8")
    assert {f"plots/{name}.svg" for name in pictures(report)} == set(re.findall(r"\((plots/[^)]+)\)", text))


def test_each_has_a_title_and_text_that_is_text(report: Path) -> None:
    for name, source in drawn(report).items():
        root = ElementTree.fromstring(source)
        assert root.get("role") == "img"
        labels = str(root.get("aria-labelledby")).split()
        named = {element.get("id"): element.text for element in root}
        assert all(named[label] for label in labels), name
        texts = [str(text.text) for text in root.iter(f"{SVG}text")]
        assert any(re.search(r"[\u4e00-\u9fff]", text) for text in texts), name
        assert not root.findall(f".//{SVG}image")


def test_files_have_plain_colours_and_the_page_has_variables(report: Path) -> None:
    assert not any("var(" in source for source in drawn(report).values())
    page = (report / "report.html").read_text(encoding="utf-8")
    inside = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    outside = re.sub(r"var\(--[\w-]+, #[0-9a-f]{6}\)", "", inside)
    assert not re.findall(r'style="[^"]*#[0-9a-f]{6}', outside)
    defined = set(re.findall(r"[ ;{](--[\w-]+):", page))
    assert set(re.findall(r"var\((--[\w-]+)", page)) <= defined


def test_ids_are_unique_on_the_page(report: Path) -> None:
    page = TableReader((report / "report.html").read_text(encoding="utf-8"))
    assert len(page.ids) == len(set(page.ids))


def test_the_same_runs_give_the_same_bytes(report: Path, tmp_path: Path) -> None:
    runs = sample_runs(tmp_path)
    write(tmp_path, runs, table(runs), sample_environment(), "zh")
    for path in (path for path in report.rglob("*") if path.is_file()):
        assert path.read_bytes() == (tmp_path / path.relative_to(report)).read_bytes(), path.name


def test_the_page_needs_nothing_else_and_is_small(report: Path) -> None:
    page = (report / "report.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 1_500_000
    assert not re.search(r"<script|<img|@import|url\((?!#)|src=", page)
    assert set(re.findall(r'<link[^>]*href="([^"]*)"', page)) == {"data:,"}


def test_each_place_has_curves_of_its_own(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path) + sample_runs(tmp_path, ranks=(2,), places=(MADE_HOSTS,))
    write(tmp_path, runs, table(runs), sample_environment(), "en")
    found = pictures(tmp_path)
    assert "none × 4" in found["loss_by_time_1"]
    assert "none × 4" not in found["loss_by_time_2"]
    assert "serial" in found["loss_by_time_2"]
    assert "2 hosts at 1 Gbit/s" in found["steps"]


def test_a_curve_is_the_mean_of_its_pieces(tmp_path: Path) -> None:
    run = sample_runs(tmp_path, ranks=(1,), epochs=2)[0]
    across, up = plots.loss_curve(run, is_by_time=True)
    assert len(across) == len(up) == plots.POINTS
    steps = len(run.step_losses)
    edges = [round(i * steps / plots.POINTS) for i in range(plots.POINTS + 1)]
    assert up[0] == pytest.approx(np.mean(run.step_losses[: edges[1]]))
    assert up[-1] == pytest.approx(np.mean(run.step_losses[edges[-2] :]))
    assert sum(run.step_seconds[: edges[-2]]) < across[-1] < run.training_seconds
    epochs, _ = plots.loss_curve(run, is_by_time=False)
    assert 0 < epochs[0] < 0.1
    assert 1.9 < epochs[-1] < 2


@pytest.mark.parametrize(
    ("compression", "name"),
    [
        ("bit16", "bit16"),
        ("bit8", "bit8/128"),
        ("bit8:format=e5m2,block_size=32", "bit8/32/e5m2"),
        ("int8:rounding=stochastic,seed=7", "int8/128/stochastic/seed7"),
        ("int4:rotation=hadamard,levels=lloyd,error_feedback=1", "int4/128/hadamard/lloyd"),
    ],
)
def test_a_compression_is_judged_by_its_codec(compression: str, name: str) -> None:
    assert codec_of_text(compression) == named_codec(name)
    (error,) = codec_errors([compression])
    x = np.random.default_rng(0).standard_normal(error.relative.size, dtype=np.float32)
    restored = named_codec(name).decode(named_codec(name).encode(x), x.size)
    assert error.nmse == nmse(restored, x)
    assert np.allclose(error.relative * np.abs(x), np.abs(restored - x), rtol=1e-5, atol=1e-9)


def test_what_is_no_codec_has_no_histogram(tmp_path: Path) -> None:
    assert codec_errors(["serial", "none", "fp16", "topk:ratio=0.01", "powersgd"]) == []
    runs = sample_runs(tmp_path, compressions=("none",))
    write(tmp_path, runs, table(runs), sample_environment(), "en")
    assert "codecs" not in pictures(tmp_path)


def test_errors_of_every_size_are_in_the_histogram(tmp_path: Path) -> None:
    """A total loss has an error of 1; a larger error is drawn apart from it."""
    rows = table(sample_runs(tmp_path, compressions=("bit8",)))
    relative = np.array([0.0, 1e-9, 1.0, 5.0, 1e6])
    figure = draw_errors([CodecError("bit8", 0.5, relative)], Names(rows, "en"))
    (drawn,) = figure.axes[0].patches
    assert isinstance(drawn, StepPatch)
    assert [value for value in drawn.get_data().values if value] == pytest.approx([40, 20, 20, 20])


def test_figures_of_a_page_share_no_id_and_no_font() -> None:
    drawn = '<g id="a"><use xlink:href="#a" clip-path="url(#b)"/><text>id="a"</text></g>'
    wanted = '<g id="x-a"><use xlink:href="#x-a" clip-path="url(#x-b)"/><text>id="a"</text></g>'
    assert svg.with_prefix(drawn, "x") == wanted
    fonts = "<text style=\"font: bold 10.5px 'A', 'B'; fill: red\"/><text style=\"font: 9px A\"/>"
    plain = '<text style="font-size: 10.5px; font-weight: bold; fill: red"/><text style="font-size: 9px"/>'
    assert svg.with_reader_fonts(fonts) == plain


def rows_and_names(runs: Sequence[Run]) -> tuple[list[Row], Names]:
    rows = table(runs)
    return rows, Names(rows, "en")


def texts(axes: Axes) -> list[str]:
    return [text.get_text() for text in axes.texts]


def labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_a_bar_is_the_step_and_its_end_the_wait(tmp_path: Path) -> None:
    rows, names = rows_and_names(sample_runs(tmp_path))
    (axes,) = plots.BARS["steps"](rows, names).axes
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(drawn) == 2 * len(rows)
    for at, row in enumerate(rows):
        computing, waiting = drawn[2 * at : 2 * at + 2]
        step = 1e3 * row.step_seconds.mean
        wait = 1e3 * row.wait_seconds.mean if row.wait_seconds else 0.0
        assert computing.get_x() == 0
        assert computing.get_width() == pytest.approx(step - wait) == waiting.get_x()
        assert waiting.get_width() == pytest.approx(wait)
        for part in (computing, waiting):
            assert part.get_y() + part.get_height() / 2 == pytest.approx(at)
    assert labels(axes) == [names.series(row) for row in rows]
    assert texts(axes) == [numbers.plain(1e3 * row.step_seconds.mean) for row in rows]
    assert axes.get_xlim()[1] > max(1e3 * row.step_seconds.mean for row in rows)
    bottom, top = axes.get_ylim()
    assert top < 0 and bottom > len(rows) - 1  # the first on top, and all of the last
    assert axes.get_legend_handles_labels()[1] == [names.label("computing"), names.label("waiting")]


def test_times_are_bars_with_what_the_seeds_differ_by(tmp_path: Path) -> None:
    rows, names = rows_and_names(sample_runs(tmp_path, seeds=3, compressions=("none", "bit8")))
    (axes,) = plots.BARS["times"](rows, names).axes
    drawn = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert [bar.get_width() for bar in drawn] == pytest.approx([row.training_seconds.mean for row in rows])
    segments = [collection.get_segments()[0] for collection in axes.collections]
    for row, ((left, _), (right, _)) in zip(rows, segments, strict=True):
        figure = row.training_seconds
        assert figure.spread and (left, right) == pytest.approx(
            (figure.mean - figure.spread, figure.mean + figure.spread)
        )
    assert texts(axes) == [numbers.plain(row.training_seconds.mean) for row in rows]
    ends = [note.xy[0] for note in axes.texts if isinstance(note, Annotation)]
    assert ends == pytest.approx([right for _, (right, _) in segments])
    assert axes.get_xlim()[1] > max(ends)


@pytest.mark.parametrize("seeds", [1, 3])
def test_accuracies_are_points_with_those_of_each_seed(tmp_path: Path, seeds: int) -> None:
    rows, names = rows_and_names(sample_runs(tmp_path, seeds=seeds, compressions=("none", "bit8")))
    (axes,) = plots.BARS["accuracies"](rows, names).axes
    points = [line for line in axes.lines if line.get_marker() == "o"]
    assert [float(line.get_xdata()[0]) for line in points] == pytest.approx(
        [100 * row.accuracy.mean for row in rows]
    )
    assert [float(line.get_ydata()[0]) for line in points] == list(range(len(rows)))
    single = [list(map(float, line.get_xdata())) for line in axes.lines if len(line.get_xdata()) == 3]
    every = [100 * run.accuracy for row in rows for run in row.runs]
    assert [x for part in single for x in part] == pytest.approx(every if seeds > 1 else [])
    left, right = axes.get_xlim()
    assert left < min(every) and max(every) < right < max(every) + max(0.5, max(every) - min(every))


def test_places_have_headings_above_their_rows(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path, compressions=("none",))
    runs += sample_runs(tmp_path, ranks=(2,), compressions=("none", "bit8"), places=(MADE_HOSTS,))
    rows, names = rows_and_names(runs)
    assert plots.heights(rows) == [1, 2, 3, 5, 6]
    assert plots.heights(rows[:3]) == [0, 1, 2]
    (axes,) = plots.BARS["times"](rows, names).axes
    headings = {text.get_text(): text.get_position()[1] for text in axes.texts[:2]}
    assert headings == {names.place("memory"): 0, names.place(MADE_HOSTS): 4}
    assert list(axes.get_yticks()) == [1, 2, 3, 5, 6]


@pytest.mark.parametrize("is_by_time", [False, True])
def test_losses_are_lines_of_training_and_points_of_tests(tmp_path: Path, is_by_time: bool) -> None:
    rows, names = rows_and_names(sample_runs(tmp_path, ranks=(1, 2), epochs=2))
    kind = "loss_by_time" if is_by_time else "loss_by_epoch"
    (axes,) = plots.CURVES[kind](rows, names).axes
    assert (axes.get_xlabel(), axes.get_title()) == (
        names.label("training_time" if is_by_time else "epoch"),
        names.label("loss"),
    )
    assert axes.get_yscale() == "log"
    for row, line, points in zip(rows, axes.lines[::2], axes.lines[1::2], strict=True):
        across, up = plots.loss_curve(row.runs[0], is_by_time)
        assert list(line.get_xdata()) == across and list(line.get_ydata()) == up
        ends = [epoch.seconds if is_by_time else epoch.number for epoch in row.runs[0].epochs]
        assert list(points.get_xdata()) == ends
        assert list(points.get_ydata()) == [epoch.test_loss for epoch in row.runs[0].epochs]
        assert line.get_color() == points.get_color() and points.get_linestyle() == "None"
    assert axes.get_legend_handles_labels()[1] == [names.series(row) for row in rows]
    large, small = axes.yaxis.get_major_formatter(), axes.yaxis.get_minor_formatter()
    assert [large(value, 0) for value in (0.1, 1.0, 10.0)] == ["0.1", "1", "10"]
    assert [small(digit * 0.1, 0) for digit in range(1, 10)] == ["", "0.2", "", "", "0.5", "", "", "", ""]


@pytest.mark.parametrize(
    ("epochs", "ticks"), [(1, [1]), (3, [1, 2, 3]), (10, [*range(1, 11)]), (11, [1, 3, 5, 7, 9, 11])]
)
def test_accuracy_by_epoch_has_whole_epochs_ten_at_most(
    tmp_path: Path, epochs: int, ticks: list[int]
) -> None:
    rows, names = rows_and_names(sample_runs(tmp_path, ranks=(1, 2), compressions=("none",), epochs=epochs))
    (axes,) = plots.CURVES["accuracy_by_epoch"](rows, names).axes
    assert list(axes.get_xticks()) == ticks
    left, right = axes.get_xlim()
    assert 0 <= left < 1 and epochs < right <= epochs + 1
    for row, line in zip(rows, axes.lines, strict=True):
        assert list(line.get_xdata()) == list(range(1, epochs + 1))
        assert list(line.get_ydata()) == [100 * epoch.accuracy for epoch in row.runs[0].epochs]
    (axes,) = plots.CURVES["accuracy_by_time"](rows, names).axes
    assert axes.get_xlim()[0] == 0 and axes.get_xlabel() == names.label("training_time")


def test_curves_of_seeds_are_their_mean_where_that_is_a_number() -> None:
    one, other = ([1.0, 2.0, 3.0], [10.0, math.inf, 30.0]), ([3.0, 4.0, 5.0, 6.0], [20.0, 1.0, math.nan, 4.0])
    assert plots.mean_curve([one, other]) == ([2.0], [15.0])
    assert plots.mean_curve([one]) == ([1.0, 3.0], [10.0, 30.0])


def test_a_legend_has_as_many_columns_as_fit() -> None:
    columns = [plots.legend_columns(["x" * length]) for length in range(1, 120)]
    assert columns[0] == 4 and columns[-1] == 1 and columns == sorted(columns, reverse=True)
    for length, number in enumerate(columns, 1):  # a letter has some 5.6 points
        assert number == 1 or number * (34 + 5.6 * length) <= 72 * plots.SIZE[0]
        assert number == 4 or (number + 1) * (34 + 5.6 * length) > 72 * plots.SIZE[0]


def test_rows_are_drawn_in_ways_that_differ(tmp_path: Path) -> None:
    compressions = ("none", "bit16", "bit8", "int8", "int4")
    rows, names = rows_and_names(sample_runs(tmp_path, compressions=compressions, ranks=(1, 2, 3, 4, 8)))
    drawn = [stroke for _, stroke in plots.strokes(rows, names)]
    assert len({(stroke.colour, str(stroke.dashes)) for stroke in drawn[1:]}) == len(rows) - 1 == 20
    assert {stroke.marker for stroke in drawn[1:]}.isdisjoint({drawn[0].marker})
    for row, stroke in zip(rows[1:], drawn[1:], strict=True):
        for other_row, other in zip(rows[1:], drawn[1:], strict=True):
            same = row.algorithm == other_row.algorithm
            assert ((stroke.colour, stroke.marker) == (other.colour, other.marker)) == same
            assert (stroke.dashes == other.dashes) == (row.ranks == other_row.ranks)
    assert drawn[0].colour not in {stroke.colour for stroke in drawn[1:]}


def test_a_histogram_has_a_line_and_its_loss_for_each_codec(tmp_path: Path) -> None:
    _, names = rows_and_names(sample_runs(tmp_path, ranks=(2,), compressions=("none", "bit16", "bit8")))
    errors = codec_errors(["none", "bit16", "bit8"])
    assert [error.compression for error in errors] == ["bit16", "bit8"]  # only codecs have an error
    (axes,) = draw_errors(errors, names).axes
    for error, patch in zip(errors, axes.patches, strict=True):
        assert isinstance(patch, StepPatch) and patch.get_label() == (
            f"{error.compression}: NMSE {numbers.small(error.nmse)}"
        )
        assert sum(patch.get_data().values) == pytest.approx(100)
    assert len({str(patch.get_linestyle()) for patch in axes.patches}) == 2
    marked = [label.get_text() for label in axes.get_xticklabels()]
    assert marked[0] == "10⁻⁷" and marked[-1] == "10⁻¹"
    assert list(axes.get_xticks()) == pytest.approx([1e-7, 1e-5, 1e-3, 1e-1])
    assert axes.get_xscale() == "log" and axes.get_ylim()[0] == 0


TRIALS = (Trial(11, 15, 0.05, True), Trial(17, 20, 0.2, False), Trial(22, 25, 0.06, True))


def test_the_autotuners_trials_are_drawn_once_for_each_row(tmp_path: Path) -> None:
    tuned = ("HOROVOD_CYCLE_TIME=2", "HOROVOD_MESSAGE_KB=64")
    runs = [
        replace(run, trials=TRIALS, tuned=tuned if run.plan.compression == "bit8" else ())
        if run.plan.ranks > 1 and run.plan.compression != "none"
        else run
        for run in sample_runs(tmp_path)
    ]
    rows = table(runs)
    write(tmp_path, runs, rows, sample_environment(), "en")
    expected = [row for row in rows if any(run.trials for run in row.runs)]
    assert len([name for name in pictures(tmp_path) if name.startswith("tuning_")]) == len(expected) > 1
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert r"Chosen: HOROVOD\_CYCLE\_TIME=2, HOROVOD\_MESSAGE\_KB=64." in text
    assert "Chosen: what the run began with." in text


def test_a_trial_is_as_wide_as_its_steps_and_as_high_as_their_mean(tmp_path: Path) -> None:
    run = replace(sample_runs(tmp_path)[0], trials=TRIALS)
    [axes] = draw_tuning(run, Names([], "en")).axes
    every, kept, tried = axes.lines[:3]
    assert len(every.get_xdata()) == len(run.step_seconds)
    assert np.array_equal(tried.get_xdata(), [16.5, 20.5, math.nan], equal_nan=True)
    assert np.array_equal(tried.get_ydata(), [200, 200, math.nan], equal_nan=True)
    assert np.array_equal(np.asarray(kept.get_xdata())[:3], [10.5, 15.5, math.nan], equal_nan=True)
    assert axes.lines[3].get_xdata()[0] == 25.5
