"""The words of a report in one language: its template, the labels in it, and the names of rows."""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from horovod.lab import errors
from horovod.lab.places import made_place
from horovod.lab.report.numbers import NO_BREAK
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, THIS_HOST, Plan
from horovod.topology.language import LANGUAGES

LONGEST = 14  # characters of an algorithm's name that is not shortened
RATE = re.compile(r"([\d.]+)([kmgt]?)bit", re.IGNORECASE)


@functools.cache
def environment() -> Environment:
    return Environment(
        loader=PackageLoader("horovod.lab", "report"),
        autoescape=lambda name: name == "report.html.jinja",
        finalize=lambda value: " ".join(value.splitlines()) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def template(language: str) -> Template:
    if language not in LANGUAGES:
        raise errors.no_language(got=language, choices=list(LANGUAGES))
    return environment().get_template(f"{language}.jinja")


def tidy(text: str) -> str:
    """A full-width mark contains its space; a number stays on the line of its percent sign."""
    return text.replace("） ", "）").replace(" %", f"{NO_BREAK}%")


def rate_in_words(found: re.Match[str]) -> str:
    """A rate in tc's form (1gbit) in readers' form (1 Gbit/s)."""
    return f"{found[1]} {found[2].upper().replace('K', 'k')}bit/s"


class Names:
    """Short names of all rows of a report, unique for each row, and the template's labels.

    A long compression, such as int4:rotation=hadamard,levels=lloyd, becomes "int4 (a)"; `shortened` lists
    these names.
    """

    def __init__(self, rows: Sequence[Row], language: str) -> None:
        self.language = language
        self.labels: dict[str, Any] = template(language).module.labels  # type: ignore[attr-defined]
        self.algorithms = list(dict.fromkeys(row.algorithm for row in rows))
        parallel = [row for row in rows if row.algorithm != SERIAL]
        self.places = list(dict.fromkeys(row.place for row in parallel or rows))
        self.shortened: dict[str, str] = {}  # algorithm -> short name
        for algorithm in self.algorithms:
            if len(algorithm) > LONGEST:
                letter = string.ascii_lowercase[len(self.shortened) % 26]
                self.shortened[algorithm] = f"{algorithm.partition(':')[0][:LONGEST]} ({letter})"

    def label(self, key: str, **values: object) -> str:
        return tidy(self.labels[key].format(**values))

    def listed(self, items: Iterable[Any], name: Callable[[Any], str] = str) -> str:
        return self.label("comma").join(map(name, items))

    def algorithm(self, algorithm: str) -> str:
        if algorithm == SERIAL:
            return self.label("serial")
        return self.shortened.get(algorithm, algorithm)

    def place(self, place: str) -> str:
        if place == THIS_HOST:
            return self.label("this_host")
        made = made_place(place)
        if made is None:
            return place
        if made.rate == "none":
            return self.label("unlimited_hosts", hosts=made.count)
        return self.label("made_hosts", hosts=made.count, rate=RATE.sub(rate_in_words, made.rate))

    def series(self, row: Row | Plan) -> str:
        """The name of a row, or of a plan's row, within its place."""
        algorithm = self.algorithm(row.algorithm)
        return algorithm if row.algorithm == SERIAL else f"{algorithm} × {row.ranks}"

    def row(self, row: Row | Plan) -> str:
        """The name of a row, or of a plan's row, within the report."""
        if len(self.places) == 1 or row.algorithm == SERIAL:
            return self.series(row)
        return self.label("row_at", row=self.series(row), place=self.place(row.place))
