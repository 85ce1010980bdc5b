"""The experiment report: report.html, report.md and plots/*.svg, in English or Chinese.

facts.py, tables.py and plots.py compute. A template in the report's language has all sentences: document.py
makes a `Document` of its text, and pages.py writes it twice. The HTML page contains its style and pictures,
needs neither network nor scripts, and follows light and dark mode. The Markdown links to the pictures.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from horovod.lab import errors
from horovod.lab.environment import Environment
from horovod.lab.report import facts, pages, plots, tables
from horovod.lab.report.document import Code, Document, Parser, Picture
from horovod.lab.report.words import Names, template
from horovod.lab.results import Row
from horovod.lab.runs import Run
from horovod.topology.language import LANGUAGES
from horovod.topology.svg import drawing

__all__ = ["LANGUAGES", "compose", "write"]


def write(
    folder: Path,
    runs: Sequence[Run],
    rows: Sequence[Row],
    environment: Environment,
    language: str = "en",
    command: str = "",
) -> list[Path]:
    """Write the report into `folder`, without older plots in its plots/. Returns the files written.

    `rows`: the table of the runs. `command`: the lab's command line for the same runs. ValueError: there are
    no rows, or the language is not "en" or "zh".
    """
    if not rows:
        raise errors.nothing_to_report()
    document = compose(folder, runs, rows, environment, language, command)
    beside = folder / "plots"
    beside.mkdir(parents=True, exist_ok=True)
    written = {
        folder / "report.html": pages.html_page(document),
        folder / "report.md": pages.markdown_page(document),
        **{beside / f"{picture.name}.svg": picture.svg for picture in document.pictures},
    }
    for old in set(beside.glob("*.svg")) - set(written):
        old.unlink()
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    return list(written)


def compose(
    folder: Path,
    runs: Sequence[Run],
    rows: Sequence[Row],
    environment: Environment,
    language: str,
    command: str = "",
) -> Document:
    """The report, before it is written; as `write`."""
    order = [row.place for row in rows]
    rows = sorted(rows, key=lambda row: order.index(row.place))  # keep a place's rows together
    names = Names(rows, language)
    parser = Parser(names.labels)
    values = facts.facts(runs, rows, environment, names)
    values |= plots.pictures(rows, values["codec_errors"], names)
    values |= {
        "show": parser.show,
        "command": Code(command) if command else None,
        "environment": tables.environment_tables(environment, names),
        "hosts": tables.hosts_table(environment.hosts, names),
        "topology": hosts_picture(environment, language),
        "results": tables.results_tables(rows, folder, names),
        "runs_table": tables.runs_table(runs, folder, names),
    }
    module = template(language).make_module(values)
    return parser.document(module.report(), language)  # type: ignore[attr-defined]


def hosts_picture(environment: Environment, language: str) -> Picture | None:
    hosts = environment.hosts
    if not hosts:
        return None
    return Picture("topology", lambda *_: drawing(hosts, say=LANGUAGES[language]))
