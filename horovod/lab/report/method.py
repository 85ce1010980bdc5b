"""How the experiment was done: its options, and warnings."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence

from horovod.lab.load import DISTURBED
from horovod.lab.report.comparison import disturbed_runs, undivided_rows
from horovod.lab.report.names import Names
from horovod.lab.report.words import Words
from horovod.lab.results import Row
from horovod.lab.runs import Run

__all__ = ["description", "warnings"]


def description(runs: Sequence[Run], names: Names, words: Words) -> list[tuple[str, str]]:
    arguments = unique(shlex.join(run.plan.arguments) for run in runs if run.plan.arguments)
    found = [
        ("script", unique(run.plan.script for run in runs)),
        ("arguments", arguments),
        ("dataset", unique(run.dataset for run in runs)),
        ("places", [names.place(place) for place in names.places]),
        ("threads", unique(str(run.plan.threads) for run in runs)),
        ("epochs", unique(str(run.plan.epochs) for run in runs)),
        ("seeds", unique(str(run.plan.seed) for run in runs)),
        ("number_of_ranks", unique(str(run.plan.ranks) for run in runs)),
        ("compressions", unique(run.plan.compression for run in runs if run.plan.ranks > 1)),
    ]
    return [(words(key), words.listed(values)) for key, values in found if values]


def unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def warnings(runs: Sequence[Run], rows: Sequence[Row], names: Names, words: Words) -> list[str]:
    """Facts that make rows hard to compare, or a result doubtful; [] without any."""
    said = unlike(runs, words)
    if len({frozenset(run.plan.seed for run in row.runs) for row in rows}) > 1:
        said.append(words("warn_seeds"))
    disturbed = disturbed_runs(runs)
    if disturbed:
        most = max(run.load.during for run in disturbed)
        values = {"number": len(disturbed), "all": len(runs), "most": f"{100 * most:.0f} %"}
        said.append(words("warn_disturbed", limit=f"{100 * DISTURBED:.0f} %", **values))
    undivided = [names.row(row) for row in undivided_rows(rows)]
    if undivided:
        said.append(words("warn_examples", rows=words.listed(undivided)))
    diverged = [run.folder.name for run in runs if not all(map(math.isfinite, losses(run)))]
    if diverged:
        said.append(words("warn_diverged", runs=words.listed(diverged)))
    apart = [run.folder.name for run in runs if not run.identical]
    if apart:
        said.append(words("warn_not_identical", runs=words.listed(apart)))
    return said


def losses(run: Run) -> Iterable[float]:
    """All losses of a run: of its steps, and of its epochs."""
    yield from run.step_losses
    for epoch in run.epochs:
        yield from (epoch.train_loss, epoch.test_loss)


def unlike(runs: Sequence[Run], words: Words) -> list[str]:
    """Differences between runs that should have none. The serial run's script may differ."""
    found = {
        "warn_datasets": {run.dataset for run in runs},
        "warn_scripts": {run.plan.script for run in runs if run.plan.ranks > 1},
        "warn_arguments": {shlex.join(run.plan.arguments) or "–" for run in runs},
        "warn_epochs": {str(run.plan.epochs) for run in runs},
    }
    return [
        words(key, values=words.listed(sorted(values))) for key, values in found.items() if len(values) > 1
    ]
