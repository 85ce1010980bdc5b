"""Short names of rows in text and plots, unique for each row."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import SERIAL, THIS_HOST, Plan

__all__ = ["Names"]

LONGEST = 14  # characters of an algorithm's name that is not shortened
MADE_HOSTS = re.compile(r"(\d+) hosts (?:at (\S+)|unlimited)")

RATE = re.compile(r"([\d.]+)([kmgt]?)bit", re.IGNORECASE)


def rate_in_words(found: re.Match[str]) -> str:
    """A rate in tc's form (1gbit) in readers' form (1 Gbit/s)."""
    return f"{found[1]} {found[2].upper().replace('K', 'k')}bit/s"


class Names:
    """Names of all rows of a report.

    A long compression, such as int4:rotation=hadamard,levels=lloyd, becomes "int4 (a)"; `shortened` lists
    these names.
    """

    def __init__(self, rows: Sequence[Row], words: Words) -> None:
        self._words = words
        self.algorithms = list(dict.fromkeys(row.algorithm for row in rows))
        parallel = [row for row in rows if row.algorithm != SERIAL]
        self.places = list(dict.fromkeys(row.place for row in parallel or rows))
        self.shortened: dict[str, str] = {}  # algorithm -> short name
        for algorithm in self.algorithms:
            if len(algorithm) > LONGEST:
                letter = string.ascii_lowercase[len(self.shortened) % 26]
                self.shortened[algorithm] = f"{algorithm.partition(':')[0][:LONGEST]} ({letter})"

    def algorithm(self, algorithm: str) -> str:
        if algorithm == SERIAL:
            return self._words("serial")
        return self.shortened.get(algorithm, algorithm)

    def place(self, place: str) -> str:
        if place == THIS_HOST:
            return self._words("place_memory")
        made = MADE_HOSTS.fullmatch(place)
        if made is None:
            return place
        if made[2] is None:
            return self._words("place_unlimited", hosts=made[1])
        return self._words("place_made", hosts=made[1], rate=RATE.sub(rate_in_words, made[2]))

    def series(self, row: Row | Plan) -> str:
        """The name of a row, or of a plan's row, within its place."""
        algorithm = self.algorithm(row.algorithm)
        return algorithm if row.algorithm == SERIAL else f"{algorithm} × {row.ranks}"

    def row(self, row: Row | Plan) -> str:
        """The name of a row, or of a plan's row, within the report."""
        if len(self.places) == 1 or row.algorithm == SERIAL:
            return self.series(row)
        return self._words("row_at", row=self.series(row), place=self.place(row.place))

    def legend(self) -> str:
        """The list of shortened names; "" without any."""
        pairs = [f"{short} = {algorithm}" for algorithm, short in self.shortened.items()]
        return self._words("shortened", names=self._words.listed(pairs)) if pairs else ""
