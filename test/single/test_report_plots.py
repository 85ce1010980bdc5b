"""The plots: small, the same bytes for the same runs, and fit for a page beside each other."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from lab_samples import MADE_HOSTS, sample_environment, sample_runs
from matplotlib.patches import StepPatch
from report_pages import TableReader

from horovod.common.numpy_codec import named_codec, nmse
from horovod.lab.report import curves, svg, write
from horovod.lab.report.codec_errors import CodecError, codec_errors, codec_of
from horovod.lab.report.histogram import draw_errors
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import table

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    runs = sample_runs(folder)
    write(folder, runs, table(runs), sample_environment(), "zh")
    return folder


def plots(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("plots/*.svg"))}


def drawn(folder: Path) -> dict[str, str]:
    """Those of matplotlib."""
    return {name: source for name, source in plots(folder).items() if name != "topology"}


def test_what_is_drawn(report: Path) -> None:
    assert set(plots(report)) == {
        *("loss_by_epoch", "loss_by_time", "accuracy_by_epoch", "accuracy_by_time"),
        *("steps", "times", "accuracies", "codecs", "topology"),
    }
    text = (report / "report.md").read_text(encoding="utf-8")
    assert {f"plots/{name}.svg" for name in plots(report)} == set(re.findall(r"\((plots/[^)]+)\)", text))


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
    found = plots(tmp_path)
    assert "none × 4" in found["loss_by_time_1"]
    assert "none × 4" not in found["loss_by_time_2"]
    assert "serial" in found["loss_by_time_2"]
    assert "2 hosts at 1 Gbit/s" in found["steps"]


def test_a_curve_is_the_mean_of_its_pieces(tmp_path: Path) -> None:
    run = sample_runs(tmp_path, ranks=(1,), epochs=2)[0]
    across, up = curves.loss_curve(run, is_by_time=True)
    assert len(across) == len(up) == curves.POINTS
    steps = len(run.step_losses)
    edges = [round(i * steps / curves.POINTS) for i in range(curves.POINTS + 1)]
    assert up[0] == pytest.approx(np.mean(run.step_losses[: edges[1]]))
    assert up[-1] == pytest.approx(np.mean(run.step_losses[edges[-2] :]))
    assert sum(run.step_seconds[: edges[-2]]) < across[-1] < run.training_seconds
    epochs, _ = curves.loss_curve(run, is_by_time=False)
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
    assert codec_of(compression) == named_codec(name)
    (error,) = codec_errors([compression])
    x = np.random.default_rng(0).standard_normal(error.relative.size, dtype=np.float32)
    restored = named_codec(name).decode(named_codec(name).encode(x), x.size)
    assert error.nmse == nmse(restored, x)


def test_what_is_no_codec_has_no_histogram(tmp_path: Path) -> None:
    assert codec_errors(["serial", "none", "fp16", "topk:ratio=0.01", "powersgd"]) == []
    runs = sample_runs(tmp_path, compressions=("none",))
    write(tmp_path, runs, table(runs), sample_environment(), "en")
    assert "codecs" not in plots(tmp_path)


def test_errors_of_every_size_are_in_the_histogram(tmp_path: Path) -> None:
    """What is lost altogether has an error of 1; a larger one stands apart from it."""
    rows = table(sample_runs(tmp_path, compressions=("bit8",)))
    relative = np.array([0.0, 1e-9, 1.0, 5.0, 1e6])
    figure = draw_errors([CodecError("bit8", 0.5, relative)], Names(rows, Words("en")), Words("en"))
    (drawn,) = figure.axes[0].patches
    assert isinstance(drawn, StepPatch)
    assert [value for value in drawn.get_data().values if value] == pytest.approx([40, 20, 20, 20])


def test_figures_of_a_page_share_no_id_and_no_font() -> None:
    drawn = '<g id="a"><use xlink:href="#a" clip-path="url(#b)"/><text>id="a"</text></g>'
    wanted = '<g id="x-a"><use xlink:href="#x-a" clip-path="url(#x-b)"/><text>id="a"</text></g>'
    assert svg.with_prefix(drawn, "x") == wanted
    fonts = '<text style="font: bold 10.5px \'A\', \'B\'; fill: red"/><text style="font: 9px A"/>'
    plain = '<text style="font-size: 10.5px; font-weight: bold; fill: red"/><text style="font-size: 9px"/>'
    assert svg.with_reader_fonts(fonts) == plain
