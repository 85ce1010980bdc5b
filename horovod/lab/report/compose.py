"""Composes a report from runs, rows and environment. Writes no files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from horovod.lab.environment import Environment
from horovod.lab.report import explanation, method, plots, summary, tables
from horovod.lab.report.codec_errors import codec_errors
from horovod.lab.report.document import Document, Picture
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import Run
from horovod.topology.facts import Host
from horovod.topology.language import LANGUAGES
from horovod.topology.svg import drawing

__all__ = ["compose"]


def compose(
    runs: Sequence[Run], rows: Sequence[Row], environment: Environment, folder: Path, words: Words
) -> Document:
    places = list(dict.fromkeys(row.place for row in rows))
    rows = sorted(rows, key=lambda row: places.index(row.place))  # keep a place's rows together
    names = Names(rows, words)
    errors = codec_errors(names.algorithms)
    return Document(
        language=words.language,
        title=words("title"),
        warnings=tuple(method.warnings(runs, rows, names, words)),
        summary=tuple(summary.sentences(rows, environment, names, words)),
        method=tuple(method.description(runs, names, words)),
        environment=tuple(tables.environment_tables(environment, words)),
        topology=hosts_picture(environment.hosts, words),
        results=tuple(tables.results_tables(rows, folder, names, words)),
        pictures=tuple(plots.pictures(rows, errors, names, words)),
        explanation=tuple(explanation.sections(rows, environment, errors, names, words)),
        runs=tables.runs_table(runs, folder, names, words),
    )


def hosts_picture(hosts: Sequence[Host], words: Words) -> tuple[Picture, ...]:
    if not hosts:
        return ()
    drawn = drawing(hosts, say=LANGUAGES[words.language])
    return (Picture("topology", words("topology_title"), words("topology_caption"), drawn),)
