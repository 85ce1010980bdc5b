"""Parses a report: its tables, from HTML and from Markdown, and its sentences."""

from __future__ import annotations

import html
import re
import string
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

from lab_samples import sample_environment, sample_host

from horovod.lab.environment import Environment
from horovod.lab.report import compose
from horovod.lab.report.document import Bullets, Document, Section
from horovod.lab.report.words import Names, tidy
from horovod.lab.results import Row, table
from horovod.lab.runs import Run

Rows = list[list[str]]
HERE = Path("/lab")
ROOMY = sample_environment(sample_host(cores=64))
SPEED, LIMITS, PAY = "Speed-up", "What limits it", "Does compression pay?"
ACCURACY, SAME_MODEL = "Accuracy", "One model on all ranks"
UPDATES = "{row} updated the model {steps} times where the serial run did {alone} times"
# English sentences, or the part that tells one from the others.
SAID = {
    # Summary
    "scope": "{runs} of {script} on the dataset {dataset}, with",
    "fastest": "{row}: {time} of training, {speed_up} times as fast as the serial run.",
    "fastest_is_serial": "The serial run had the shortest mean time",
    "fastest_by_chance": "Chance may have decided between it and the next",
    "times_of_unequal_work": "These times are of unequal numbers of examples",
    "accuracy_equal": "All reached the same accuracy on the test data, {high}.",
    "accuracy_one_seed": "most accurate was {best} with {high}, the least accurate {worst} with {low}",
    "bytes_saved": "times fewer bytes than training without compression.",
    "compression_paid": "Compression paid in {number} of {cases} comparisons: {row} took {share} less",
    "compression_cost": "In {number} of {cases} comparisons compression cost time: {row} took {share} more",
    "compression_undecided": "No comparison shows that compression saved or cost time",
    "compression_one_seed": "One seed cannot tell whether compression paid",
    "compression_unlike": "It cannot be told whether compression paid: other programs",
    "crowded": "Up to {ranks} ranks shared {cores}, so",
    # Warnings
    "warn_seeds": "Not all rows have the same seeds, as if runs were missing.",
    "warn_disturbed": "During {number} of {all} runs other programs took more than {limit} of the "
    "processors, {most} at most.",
    "warn_examples": "The ranks did not divide the steps of the serial run in: {rows}. If",
    "warn_diverged": "The training diverged in: {runs}. A loss",
    "warn_not_identical": "The ranks did not end with the same parameters in: {runs}. These",
    # Speed-up
    "no_serial": "There is no serial run, so no speed-up can be computed. Add 1 to --np.",
    "steps_divided": "For one epoch {row} took {steps} steps where the serial run took {serial_steps}: each",
    "steps_same": "{row} took as many steps for an epoch as the serial run ({steps} and {serial_steps}).",
    "steps_other": "For one epoch {row} took {steps} steps, the serial run {serial_steps}.",
    "unequal_examples": "Speed-up there compares times of unequal numbers of examples",
    "per_example_fell": "{row}: speed-up {speed_up} with {examples} times as many examples; the time per "
    "example fell by a factor of {factor}.",
    "per_example_rose": "the time per example rose by a factor of {factor}.",
    "among_divided": "What follows is of the rows whose ranks divided the steps.",
    "speed_best": "The most efficient row is {row}: speed-up {speed_up} with",
    "speed_worst": "The least efficient is",
    "slower_than_serial": "That is slower than one device alone.",
    "above_ideal": "That is more than the ideal",
    "near_ideal": "That is close to the ideal.",
    "part_of_ideal": "That is more than half of the ideal.",
    "far_from_ideal": "That is less than half of the ideal.",
    # Limits
    "wait_share": "A step of {row} takes {step} ms, {wait} ms of them ({share} %) waiting for other ranks.",
    "compute_beside_serial": "The other {compute} ms are {factor} times the serial step of {alone} ms.",
    "limit_none": "Neither adds a tenth of a serial step.",
    "limit_waiting": "So waiting is what keeps it from the ideal most.",
    "limit_slower": "So slower computation keeps it from the ideal most.",
    "limit_cores": "So slower computation keeps it from the ideal most: there are more ranks than cores, "
    "and they take turns.",
    "limit_unknown": "So slower computation keeps it from the ideal most. How many cores the ranks shared is "
    "not known.",
    "limit_compute": "So slower computation keeps it from the ideal most. There is a core for each rank; "
    "what else they share, such as memory, caches and the engine's own threads, is not measured here.",
    "busy_meanwhile": "Other programs took {share} of the processors meanwhile, and {serial} during the "
    "serial run: they slow computation, and ranks wait for the slowest.",
    # Payment
    "less": "{share} less",
    "more": "{share} more",
    "pair_interval": "interval: {interval}.",
    "pair_left_out": "{seeds} are left out, as other programs were busy.",
    "pair_disturbed": "Other programs disturbed these runs, so the interval has {confidence}.",
    "pair_paid": "Less waiting explains {explained} of the saved time: compression paid.",
    "pair_unexplained": "less waiting explains only {explained} of it: no benefit of compression.",
    "pair_unexplained_bytes": "not because of fewer bytes: no benefit of compression.",
    "pair_unexplained_chance": "that ranks waited less may be chance: no benefit of compression.",
    "pair_cost": "Compression cost time.",
    "pair_cost_coding": "Compression cost time, and ranks waited longer: encoding and decoding",
    "pair_undecided": "The interval includes 0, so the difference may be chance.",
    "pair_one_seed": "With one seed the difference may be chance; --seeds 3 tells more.",
    "pair_unlike": "Other programs were not equally busy during the runs",
    "rule": "in 95 % of such reports all of them hold the true value.",
    "between_places": "The same training with {row}: {first} per step ({here}) and {second} ({there}),",
    # Accuracy
    "accuracy_change": "Compression changed accuracy most in {row}: by {points} percentage points.",
    "accuracy_unchanged": "Compression changed accuracy nowhere by as much as 0.01 percentage points.",
    "within_seeds": "Its interval ({low} to {high}) includes 0, so the data show no effect.",
    "beyond_seeds": "Its interval ({low} to {high}) does not include 0, so it is probably an effect.",
    "seeds_unknown": "With one seed it cannot be said how much chance alone changes; --seeds 3 would tell.",
    "codec_loses": "One encoding by {codec} loses {share} of the energy of normally distributed numbers.",
    "fewer_updates_equal": UPDATES + ", and ended equally accurate.",
    "fewer_updates_lower": UPDATES + ", and ended {points} percentage points lower: fewer and larger steps "
    "can cost accuracy when the number of epochs is kept.",
    "fewer_updates_not_lower": UPDATES + ", and ended {points} percentage points higher.",
    "fewer_updates_unclear": UPDATES + "; their accuracies differ by {points} percentage points, which may "
    "be chance.",
    # One model
    "identical": "In every parallel run all ranks ended with the same parameters, bit for bit.",
    "not_identical": "In {runs} the ranks drifted apart; the accuracy is that of rank 0 alone.",
    "places_same": "Where the ranks run changed nothing: the same training ended with the same checksum "
    "everywhere.",
    "places_apart": "The checksums of different places are not all equal; sums may be split differently "
    "there.",
}


def named(runs: Sequence[Run]) -> tuple[list[Row], Names]:
    rows = table(runs)
    return rows, Names(rows, "en")


def composed(runs: Sequence[Run], environment: Environment = ROOMY, rows: Sequence[Row] = ()) -> Document:
    return compose(HERE, runs, rows or table(runs), environment, "en")


def summarised(runs: Sequence[Run], environment: Environment = ROOMY) -> str:
    return composed(runs, environment).summary


def bullets(runs: Sequence[Run], title: str, environment: Environment = ROOMY) -> list[str]:
    """The list below a heading of the explanation; [] without it."""
    parts = [part for section in composed(runs, environment).sections for part in section.parts]
    return next((listed(part) for part in parts if part.title == title), [])


def listed(section: Section) -> list[str]:
    return [text for block in section.blocks if isinstance(block, Bullets) for _, text in block.items]


def explained(runs: Sequence[Run], title: str, environment: Environment = ROOMY) -> str:
    return " ".join(bullets(runs, title, environment))


def warned(runs: Sequence[Run], rows: Sequence[Row] = ()) -> list[str]:
    sections = composed(runs, rows=rows).sections
    return next((listed(section) for section in sections if section.key == "warning"), [])


def sentence(key: str, **values: object) -> str:
    return tidy(SAID[key].format(**values))


def says(text: str, key: str, **values: object) -> bool:
    """Whether a text has this sentence with these values; other values are arbitrary."""
    pattern = ""
    for literal, name, _, _ in string.Formatter().parse(tidy(SAID[key])):
        pattern += re.escape(literal) + (
            "" if name is None else re.escape(str(values.get(name, ""))) or ".+?"
        )
    return re.search(pattern, text) is not None


class TableReader(HTMLParser):
    """All tables by id, each a list of rows of the texts of cells; and every id, address and element."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, Rows] = {}
        self.ids: list[str] = []
        self.links: list[str] = []
        self.elements: list[str] = []
        self.text = ""
        self._rows: Rows = []
        self._cell: list[str] | None = None
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.elements.append(tag)
        if found.get("id"):
            self.ids.append(str(found["id"]))
        if tag == "a":
            self.links.append(unquote(str(found["href"])))
        if tag == "table":
            self._rows = self.tables.setdefault(str(found["id"]), [])
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self._rows[-1].append(" ".join("".join(self._cell).split()))
            self._cell = None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._cell is not None:
            self._cell.append(data)


def markdown_tables(page: str) -> list[Rows]:
    """The cells in order, as shown: without links, marks and escapes."""
    tables: list[Rows] = []
    before = ""
    for line in page.splitlines():
        if line.startswith("| "):
            if not before.startswith("| "):
                tables.append([])
            cells = [shown(cell) for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not all(set(cell) <= set("-:") for cell in cells):
                tables[-1].append(cells)
        before = line
    return tables


def shown(markdown: str) -> str:
    """The text of a cell as GitHub shows it."""
    text = re.sub(r"(?<!\\)\[((?:\\.|[^\]\\])*)\]\([^)]*\)", r"\1", markdown)
    text = re.sub(r"</?sup>", "", text)
    text = re.sub(r"\\(.)", r"\1", text)
    return " ".join(html.unescape(text).split())
