"""Compares a report's tables, parsed from HTML and Markdown, with figures computed from the runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median, stdev

import pytest
from lab_samples import MADE_HOSTS, sample_environment, sample_host, sample_runs
from refusals import refused
from report_pages import TableReader, markdown_tables

from horovod.lab import errors
from horovod.lab.load import Load
from horovod.lab.report import plots, write
from horovod.lab.report.document import Picture
from horovod.lab.report.words import Names
from horovod.lab.results import Row, table
from horovod.lab.runs import Run

pytestmark = pytest.mark.usefixtures("without_plots")


@pytest.fixture
def without_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take seconds, and other tests cover them."""
    monkeypatch.setattr(plots, "picture", lambda name, _: Picture(name, lambda *_: ""))


def written(folder: Path, runs: Sequence[Run], language: str = "en") -> tuple[TableReader, str]:
    write(folder, runs, table(runs), sample_environment(), language)
    page = (folder / "report.html").read_text(encoding="utf-8")
    return TableReader(page), (folder / "report.md").read_text(encoding="utf-8")


def is_rounded(cell: str, value: float) -> bool:
    """Whether the cell has the value, to the last digit that it shows."""
    shown = cell.split(" ± ")[0]
    decimals = len(shown.partition(".")[2])
    assert decimals > 0 or abs(value) >= 100
    return abs(float(shown) - value) <= 0.5001 * 10.0**-decimals


def group(runs: Sequence[Run], algorithm: str, ranks: int) -> list[Run]:
    return [run for run in runs if (run.plan.algorithm, run.plan.ranks) == (algorithm, ranks)]


def expected(runs: Sequence[Run], algorithm: str, ranks: int) -> list[float]:
    """The figures of a parallel row, in the units and the order of the table."""
    mine, serial = group(runs, algorithm, ranks), group(runs, "serial", 1)
    time = mean(sum(run.step_seconds) for run in mine)
    speed_up = mean(sum(run.step_seconds) for run in serial) / time
    sent = mean(run.bytes_sent / len(run.step_seconds) for run in mine)
    plain = mean(run.bytes_sent / len(run.step_seconds) for run in group(runs, "none", ranks))
    return [
        time,
        1e3 * mean(median(run.step_seconds) for run in mine),
        1e3 * mean(median(run.step_waits) for run in mine),
        100 * mean(run.epochs[-1].accuracy for run in mine),
        speed_up,
        100 * speed_up / ranks,
        sent / 1e3,
        plain / sent,
    ]


@pytest.mark.parametrize(("seeds", "language"), [(1, "en"), (3, "zh")])
def test_the_results_are_those_of_the_runs(tmp_path: Path, seeds: int, language: str) -> None:
    runs = sample_runs(tmp_path, seeds=seeds)
    page, _ = written(tmp_path, runs, language)
    head, serial, *rows = page.tables["results"]
    assert len(rows) == 6
    assert len(head) == len(serial) == 11
    for row in rows:
        for cell, value in zip(row[2:10], expected(runs, row[0], int(row[1])), strict=True):
            assert is_rounded(cell, value), (row, cell, value)
            assert (" ± " in cell) == (seeds > 1)
    assert is_rounded(serial[2], mean(sum(run.step_seconds) for run in group(runs, "serial", 1)))


def test_the_spread_is_the_sample_standard_deviation(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path, seeds=4)
    page, _ = written(tmp_path, runs)
    row = next(row for row in page.tables["results"] if row[:2] == ["bit8", "4"])
    accuracies = [100 * run.accuracy for run in group(runs, "bit8", 4)]
    assert row[5] == f"{mean(accuracies):.2f} ± {stdev(accuracies):.2f}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_markdown_has_the_cells_of_the_page(tmp_path: Path, language: str) -> None:
    runs = sample_runs(tmp_path, compressions=("none", "int4:rotation=hadamard,levels=lloyd"), seeds=2)
    runs += sample_runs(tmp_path, ("none", "bit8"), ranks=(2,), seeds=2, places=(MADE_HOSTS,))
    page, text = written(tmp_path, runs, language)
    assert list(page.tables) == ["hardware", "software", "results-1", "results-2", "runs"]
    assert markdown_tables(text) == list(page.tables.values())


def test_rows_name_their_runs_by_folders_that_can_be_opened(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path, seeds=2)
    for run in runs:
        run.folder.mkdir(parents=True)
    page, text = written(tmp_path, runs)
    folders = [link for link in page.links if not link.startswith("#")]
    assert sorted(folders) == sorted(2 * [f"runs/{run.folder.name}/" for run in runs])  # results, and runs
    assert all((tmp_path / link).is_dir() for link in folders)
    assert all(f"[{run.plan.seed}](runs/{run.folder.name}/)" in text for run in runs)
    checksums = {row[0]: row[-2] for row in page.tables["runs"][1:]}
    assert checksums == {run.folder.name: run.checksum[:16] for run in runs}


def test_disturbed_runs_are_marked(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path, ranks=(1, 2), seeds=3)
    load = Load(0.0, 0.36, 0.02)
    disturbed = [i for i, run in enumerate(runs) if run.plan.algorithm == "bit8" and run.plan.seed < 3]
    runs = [replace(run, load=load) if i in disturbed else run for i, run in enumerate(runs)]
    for language, word in (("en", "disturbed"), ("zh", "受干扰")):
        page, text = written(tmp_path, runs, language)
        cells = {row[0]: row[-1] for row in page.tables["runs"][1:]}
        marked = {name: cell for name, cell in cells.items() if word in cell}
        assert sorted(marked) == ["np2-bit8-seed1", "np2-bit8-seed2"]
        assert all("0 / 36 / 2" in cell for cell in marked.values())
        notes = {row[0]: row[2][-1] for row in page.tables["results"][1:]}
        assert [name for name, mark in notes.items() if mark.isalpha()] == ["bit8"]
        assert Names([], language).label("row_disturbed", number=2, all=3) in page.text
        assert "--repeat-disturbed" in page.text and "--repeat-disturbed" in text


def test_what_has_no_meaning_is_a_dash_with_the_reason(tmp_path: Path) -> None:
    runs = [run for run in sample_runs(tmp_path) if run.plan.compression != "none"]
    page, text = written(tmp_path, runs)
    first = page.tables["results"][1]
    assert [cell[0] for cell in first[6:8]] == ["–", "–"]
    assert first[9][0] == "–"
    for reason in ("no serial run with as many epochs", "no run without compression with as many devices"):
        assert reason in page.text
        assert reason in text
    notes = {link[1:] for link in page.links if link.startswith("#")}
    assert notes
    assert notes <= set(page.ids)


def test_absent_things_are_named_absent(tmp_path: Path) -> None:
    for language, absent in (("en", "none found"), ("zh", "未发现")):
        page, _ = written(tmp_path, sample_runs(tmp_path), language)
        for name in ("hardware", "software"):
            rows = page.tables[name][1:]
            assert all(cell for row in rows for cell in row)
            assert absent in [row[1] for row in rows]


def test_several_hosts_have_a_row_each(tmp_path: Path) -> None:
    runs = sample_runs(tmp_path)
    hosts = (sample_host("node1", 4), sample_host("node2.a-very-long-domain.example.org", 8))
    write(tmp_path, runs, table(runs), sample_environment(*hosts), "en")
    page = TableReader((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert [row[0] for row in page.tables["hosts"][1:]] == [host.name for host in hosts]
    assert [row[2] for row in page.tables["hosts"][1:]] == ["4", "8"]


def test_old_plots_go(tmp_path: Path) -> None:
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "older.svg").write_text("<svg/>")
    runs = sample_runs(tmp_path)
    paths = write(tmp_path, runs, table(runs), sample_environment(), "en")
    assert sorted(paths) == sorted(path for path in tmp_path.rglob("*") if path.is_file())


def test_no_runs_are_refused(tmp_path: Path) -> None:
    rows: list[Row] = []
    with refused(errors.nothing_to_report):
        write(tmp_path, [], rows, sample_environment(), "en")
