"""A report shows external texts that look like markup as plain text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lab_samples import sample_environment, sample_host, sample_runs, with_plan
from report_pages import TableReader, markdown_tables

from horovod.lab.environment import Entry
from horovod.lab.report import write
from horovod.lab.results import table

HOSTILE = '<script>alert(1)</script> & | "both\' `quotes` \\ $x$ [a](b) *c* _d_ {e} #0072b2 id="f"'


def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path) -> None:
    plain = sample_runs(tmp_path)
    write(tmp_path, plain, table(plain), sample_environment(), "en")
    elements = set(TableReader((tmp_path / "report.html").read_text(encoding="utf-8")).elements)
    runs = [
        with_plan(replace(run, dataset=HOSTILE), script=HOSTILE, place=HOSTILE, arguments=(HOSTILE,))
        for run in plain
    ]
    runs = [with_plan(run, compression=HOSTILE) if run.plan.compression == "bit8" else run for run in runs]
    environment = sample_environment(sample_host(HOSTILE), sample_host())
    environment = replace(
        environment, entries=(Entry("hardware", "cpu", HOSTILE), Entry(HOSTILE, HOSTILE, None))
    )
    write(tmp_path, runs, table(runs), environment, "en", command=HOSTILE)
    html, text = ((tmp_path / name).read_text(encoding="utf-8") for name in ("report.html", "report.md"))
    page = TableReader(html)
    assert set(page.elements) == elements | {"pre", "code"}  # of the command
    assert page.tables["hardware"][1][1] == HOSTILE
    assert page.tables["hosts"][1][0] == HOSTILE
    assert markdown_tables(text)[0][1][1] == HOSTILE
    assert "<script" not in text.replace(f"```sh\n{HOSTILE}", "")  # a block of code means itself
