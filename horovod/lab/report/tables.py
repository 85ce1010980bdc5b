"""The tables of a report: the environment, the results, and the runs that they come from."""

from __future__ import annotations

import os
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from horovod.lab.environment import Environment
from horovod.lab.load import Load
from horovod.lab.report import numbers
from horovod.lab.report.comparison import disturbed_runs
from horovod.lab.report.document import Cell, Link, Table
from horovod.lab.report.words import Names
from horovod.lab.results import Figure, Row
from horovod.lab.runs import SERIAL, Run
from horovod.topology.facts import Host, Nic


@dataclass(frozen=True)
class Column:
    """A column of numbers: a statistic of Row, its format, and the labels of reasons why it is missing."""

    statistic: str
    written: Callable[[Figure], str]
    missing: str
    missing_serial: str = ""
    missing_unsent: str = ""  # if a run of the row sent nothing
    is_time: bool = False

    def why_missing(self, row: Row) -> str:
        if self.missing_serial and row.algorithm == SERIAL:
            return self.missing_serial
        is_unsent = any(run.bytes_sent == 0 for run in row.runs)
        return self.missing_unsent if self.missing_unsent and is_unsent else self.missing


COLUMNS = (
    Column("training_seconds", numbers.seconds, "no_log", is_time=True),
    Column("step_seconds", numbers.milliseconds, "no_log", is_time=True),
    Column("wait_seconds", numbers.milliseconds, "no_log", "no_waiting"),
    Column("accuracy", numbers.accuracy, "no_log"),
    Column("speed_up", numbers.factor, "no_serial"),
    Column("efficiency", numbers.percent, "no_serial"),
    Column("bytes_per_step", numbers.byte_count, "no_log", "no_bytes"),
    Column("compression_ratio", numbers.factor, "no_uncompressed", "no_bytes", "nothing_sent"),
)


def results_tables(rows: Sequence[Row], folder: Path, names: Names) -> list[tuple[Table, str, int]]:
    """For each place a table, the place, and the number of seeds; the serial run is in the first."""
    tables = []
    for number, place in enumerate(names.places, 1):
        here = [row for row in rows if row.place == place or (number == 1 and row.algorithm == SERIAL)]
        name = "results" if len(names.places) == 1 else f"results-{number}"
        seeds = max(len(row.runs) for row in here)
        tables.append((results_table(name, here, folder, names), place, seeds))
    return tables


def results_table(name: str, rows: Sequence[Row], folder: Path, names: Names) -> Table:
    """Algorithm and ranks, then `COLUMNS`, then the runs. Equal footnotes share a mark."""
    marks: dict[str, str] = {}
    body = []
    for row in rows:
        cells = [Cell(names.algorithm(row.algorithm)), Cell(str(row.ranks))]
        for column in COLUMNS:
            text, note = number_and_note(row, column, names)
            mark = marks.setdefault(note, string.ascii_lowercase[len(marks)]) if note else ""
            cells.append(Cell(text, mark))
        seeds = tuple(link(run, folder, str(run.plan.seed)) for run in row.runs)
        body.append((*cells, Cell("", links=seeds)))
    notes = tuple((mark, note) for note, mark in marks.items())
    return Table(name, tuple(body), notes, names=2, is_numeric=True)


def number_and_note(row: Row, column: Column, names: Names) -> tuple[str, str]:
    """The text of a cell, and its footnote: the reason for a missing number, or the disturbed runs."""
    figure: Figure | None = getattr(row, column.statistic)
    if figure is None:
        return numbers.MISSING, names.label(column.why_missing(row))
    disturbed = disturbed_runs(row.runs) if column.is_time else []
    note = names.label("row_disturbed", number=len(disturbed), all=len(row.runs)) if disturbed else ""
    return column.written(figure), note


def link(run: Run, folder: Path, text: str) -> Link:
    """A link to the run's folder, relative to the report's; always with slashes, as in URLs."""
    return Link(text, Path(os.path.relpath(run.folder, folder)).as_posix() + "/", run.folder.name)


def runs_table(runs: Sequence[Run], folder: Path, names: Names) -> Table:
    body = [
        (
            Cell("", links=(link(run, folder, run.folder.name),)),
            Cell(names.row(run.plan)),
            Cell(str(run.plan.seed)),
            Cell(str(len(run.step_seconds))),
            Cell(numbers.plain(run.training_seconds)),
            Cell(numbers.accuracy(Figure(run.accuracy, None))),
            Cell(names.label("one_rank" if run.plan.ranks == 1 else "yes" if run.identical else "no")),
            Cell(run.checksum[:16]),
            Cell(load_text(run.load, names)),
        )
        for run in runs
    ]
    return Table("runs", tuple(body))


def load_text(load: Load, names: Names) -> str:
    """The load before, during and after the run, in percent."""
    shares = " / ".join(f"{100 * share:.0f}" for share in (load.before, load.during, load.after))
    return names.label("load_disturbed", shares=shares) if load.is_disturbing else shares


def environment_tables(environment: Environment, names: Names) -> list[Table]:
    """Tables of hardware and software. An entry without a label keeps its name."""
    sections: dict[str, list[tuple[Cell, ...]]] = {}
    for entry in environment.entries:
        name = names.labels["entries"].get(entry.name, entry.name)
        cells = (Cell(name), Cell(entry.value or names.label("absent")))
        sections.setdefault(entry.section, []).append(cells)
    return [Table(section, tuple(body), is_titled=True) for section, body in sections.items()]


def named_nic(nic: Nic) -> str:
    model = nic.model or nic.driver
    return f"{nic.name} ({model})" if model else nic.name


def hosts_table(hosts: Sequence[Host], names: Names) -> Table | None:
    """A row for each of several hosts."""
    absent = names.label("absent")
    body = [
        (
            Cell(host.name),
            Cell(names.listed(dict.fromkeys(s.model for s in host.sockets if s.model)) or absent),
            Cell(str(host.usable_cores)),
            Cell(numbers.gibibytes(host.memory_bytes) or absent),
            Cell(names.listed(gpu.model for gpu in host.gpus) or absent),
            Cell(names.listed(host.nics, named_nic) or absent),
        )
        for host in hosts
    ]
    return Table("hosts", tuple(body), is_titled=True) if len(hosts) > 1 else None
