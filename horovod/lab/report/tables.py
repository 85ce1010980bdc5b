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
from horovod.lab.report.document import Cell, Link, Note, Table
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Figure, Row
from horovod.lab.runs import SERIAL, Run
from horovod.topology.facts import Host, Nic

__all__ = ["COLUMNS", "environment_tables", "results_tables", "runs_table"]


@dataclass(frozen=True)
class Column:
    """A column of numbers: a statistic of Row, its format, and the keys of the reasons why it is missing."""

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
    Column("training_seconds", numbers.seconds, "why_no_log", is_time=True),
    Column("step_seconds", numbers.milliseconds, "why_no_log", is_time=True),
    Column("wait_seconds", numbers.milliseconds, "why_no_log", "why_no_waiting"),
    Column("accuracy", numbers.accuracy, "why_no_log"),
    Column("speed_up", numbers.factor, "why_no_serial"),
    Column("efficiency", numbers.percent, "why_no_serial"),
    Column("bytes_per_step", numbers.byte_count, "why_no_log", "why_no_bytes"),
    Column("compression_ratio", numbers.factor, "why_no_uncompressed", "why_no_bytes", "why_nothing_sent"),
)


class Notes:
    """Footnotes: equal texts share a mark."""

    def __init__(self) -> None:
        self._marks: dict[str, str] = {}

    def mark(self, text: str) -> str:
        return self._marks.setdefault(text, string.ascii_lowercase[len(self._marks)])

    def all(self) -> tuple[Note, ...]:
        return tuple(Note(mark, text) for text, mark in self._marks.items())


def results_tables(rows: Sequence[Row], folder: Path, names: Names, words: Words) -> list[Table]:
    """A table for each place; the serial run is in the first."""
    tables = []
    for number, place in enumerate(names.places, 1):
        here = [row for row in rows if row.place == place or (number == 1 and row.algorithm == SERIAL)]
        name = "results" if len(names.places) == 1 else f"results-{number}"
        tables.append(results_table(name, place, here, folder, names, words))
    return tables


def results_table(
    name: str, place: str, rows: Sequence[Row], folder: Path, names: Names, words: Words
) -> Table:
    """Algorithm and ranks, then `COLUMNS`, then the runs."""
    notes = Notes()
    body = []
    for row in rows:
        cells = [Cell(names.algorithm(row.algorithm)), Cell(str(row.ranks))]
        cells += [number_cell(row, column, notes, words) for column in COLUMNS]
        seeds = [link(run, folder, str(run.plan.seed)) for run in row.runs]
        cells.append(Cell("", links=tuple(seeds)))
        body.append(tuple(cells))
    head = [
        words(key)
        for key in ("algorithm", "ranks", *(column.statistic for column in COLUMNS), "runs_by_seed")
    ]
    most = max(len(row.runs) for row in rows)
    caption = words("results_caption_spread", seeds=most) if most > 1 else words("results_caption")
    caption = words.together(words("results_place", place=names.place(place)), caption)
    if names.legend():
        caption = words.together(caption, names.legend())
    return Table(name, caption, tuple(head), tuple(body), notes.all(), 2, is_numeric=True)


def number_cell(row: Row, column: Column, notes: Notes, words: Words) -> Cell:
    figure: Figure | None = getattr(row, column.statistic)
    if figure is not None:
        return Cell(column.written(figure), disturbed_mark(row, notes, words) if column.is_time else "")
    return Cell(numbers.MISSING, notes.mark(words(column.why_missing(row))))


def disturbed_mark(row: Row, notes: Notes, words: Words) -> str:
    """The mark of the note that counts the disturbed runs of a row; "" without any."""
    disturbed = disturbed_runs(row.runs)
    if not disturbed:
        return ""
    return notes.mark(words("row_disturbed", number=len(disturbed), all=len(row.runs)))


def link(run: Run, folder: Path, text: str) -> Link:
    """A link to the run's folder, relative to the report's; always with slashes, as in URLs."""
    return Link(text, Path(os.path.relpath(run.folder, folder)).as_posix() + "/", run.folder.name)


def runs_table(runs: Sequence[Run], folder: Path, names: Names, words: Words) -> Table:
    body = [
        (
            Cell("", links=(link(run, folder, run.folder.name),)),
            Cell(names.row(run.plan)),
            Cell(str(run.plan.seed)),
            Cell(str(len(run.step_seconds))),
            Cell(numbers.seconds(Figure(run.training_seconds, None))),
            Cell(numbers.accuracy(Figure(run.accuracy, None))),
            Cell(words(identical_key(run))),
            Cell(run.checksum[:16]),
            Cell(load_text(run.load, words)),
        )
        for run in runs
    ]
    head = ("run", "row", "seed", "steps", "training_seconds", "accuracy", "same_model", "checksum", "load")
    return Table("runs", words("runs_caption"), tuple(words(key) for key in head), tuple(body))


def load_text(load: Load, words: Words) -> str:
    """The load before, during and after the run, in percent."""
    shares = " / ".join(f"{100 * share:.0f}" for share in (load.before, load.during, load.after))
    return words("load_disturbed", shares=shares) if load.is_disturbing else shares


def identical_key(run: Run) -> str:
    if run.plan.ranks == 1:
        return "one_rank"
    return "yes" if run.identical else "no"


def environment_tables(environment: Environment, words: Words) -> list[Table]:
    """Tables of hardware and software; for several hosts also a table with a row for each."""
    tables = []
    for section in dict.fromkeys(entry.section for entry in environment.entries):
        body = [
            (Cell(named(f"entry_{entry.name}", entry.name, words)), Cell(entry.value or words("absent")))
            for entry in environment.entries
            if entry.section == section
        ]
        title = named(f"section_{section}", section, words)
        tables.append(Table(section, title, (words("part"), words("what")), tuple(body)))
    if len(environment.hosts) > 1:
        tables.append(hosts_table(environment.hosts, words))
    return tables


def named(key: str, name: str, words: Words) -> str:
    """The text of a key; an entry without a text keeps its name."""
    return words(key) if key in words else name


def named_nic(nic: Nic) -> str:
    model = nic.model or nic.driver
    return f"{nic.name} ({model})" if model else nic.name


def hosts_table(hosts: Sequence[Host], words: Words) -> Table:
    absent = words("absent")
    body = [
        (
            Cell(host.name),
            Cell(words.listed(list(dict.fromkeys(s.model for s in host.sockets if s.model))) or absent),
            Cell(str(host.usable_cores)),
            Cell(numbers.gibibytes(host.memory_bytes) or absent),
            Cell(words.listed([gpu.model for gpu in host.gpus]) or absent),
            Cell(words.listed([named_nic(nic) for nic in host.nics]) or absent),
        )
        for host in hosts
    ]
    head = ("host", "entry_cpu", "usable_cores", "entry_memory", "entry_gpu", "entry_nic")
    return Table("hosts", words("hosts"), tuple(words(key) for key in head), tuple(body))
