"""From options to the list of runs, and the names of their folders."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from horovod.lab.digest import digest
from horovod.lab.places import check_ranks
from horovod.lab.runs import SERIAL, THIS_HOST, Plan

_BESIDE = Path(__file__).resolve().parents[2] / "examples"
EXAMPLES = _BESIDE if _BESIDE.is_dir() else Path("examples").resolve()  # else those of the current folder
SERIAL_EXAMPLE, PARALLEL_EXAMPLE = EXAMPLES / "pytorch_mnist.py", EXAMPLES / "pytorch_mnist_compress.py"
# They allow training on small digits, without MNIST and network; the report names the data.
EXAMPLE_ARGUMENTS = ("--allow-digits",)
# The small network's gradients would be too few to show the effect of a cable's rate.
EXAMPLE_BETWEEN_HOSTS = ("--model", "mlp")
EPOCHS, SEEDS = 3, 3


@dataclass(frozen=True)
class Experiment:
    """The options to compare: every combination is a run."""

    ranks: Sequence[int] = (1, 2, 4)
    compressions: Sequence[str] = ("none", "bit16", "bit8")
    epochs: int = EPOCHS
    seeds: int = SEEDS
    places: Sequence[str] = (THIS_HOST,)
    script: str | None = None  # None: the MNIST examples
    arguments: Sequence[str] = ()  # further arguments of the script
    threads: int = 1
    _digests: dict[str, str] = field(default_factory=dict, compare=False)

    def plans(self) -> list[Plan]:
        """All runs, grouped by kind.

        One rank is the run without Horovod: it has no compression, and is the same at every place. PlaceError
        if ranks do not fit into a place.
        """
        alone = [1] if 1 in self.ranks else []
        plans = [self._plan(1, "none", seed, THIS_HOST) for _ in alone for seed in self._seeds()]
        for place in self.places:
            for ranks in sorted(set(self.ranks) - {1}):
                check_ranks(place, ranks)
                for compression in dict.fromkeys(self.compressions):
                    plans += [self._plan(ranks, compression, seed, place) for seed in self._seeds()]
        return plans

    def _seeds(self) -> range:
        return range(1, self.seeds + 1)

    def _plan(self, ranks: int, compression: str, seed: int, place: str) -> Plan:
        script = self.script
        if script is None:
            script = _from_here(SERIAL_EXAMPLE if ranks == 1 else PARALLEL_EXAMPLE)
        return Plan(
            script=script,
            ranks=ranks,
            compression=compression,
            seed=seed,
            epochs=self.epochs,
            place=place,
            arguments=self._arguments(),
            threads=self.threads,
            digest=self._digest(script),
        )

    def _arguments(self) -> tuple[str, ...]:
        given = tuple(self.arguments)
        if self.script is not None:
            return given
        is_between_hosts = any(place != THIS_HOST for place in self.places)
        chosen = any(word.partition("=")[0] == "--model" for word in given)
        model = EXAMPLE_BETWEEN_HOSTS if is_between_hosts and not chosen else ()
        return EXAMPLE_ARGUMENTS + model + given

    def _digest(self, script: str) -> str:
        if script not in self._digests:
            self._digests[script] = digest(script)
        return self._digests[script]


def in_rounds(plans: Sequence[Plan]) -> list[Plan]:
    """The order of runs: one run of each kind, then the next seed of each in reverse order, and so on.

    So runs that are compared are close together, and none always comes first: slow changes of the machine
    affect all kinds equally.
    """
    ordered: list[Plan] = []
    for number, seed in enumerate(dict.fromkeys(plan.seed for plan in plans)):
        kinds = [plan for plan in plans if plan.seed == seed]
        ordered += kinds[::-1] if number % 2 else kinds
    return ordered


def _from_here(path: Path) -> str:
    """The path, relative if it is in or below the folder in which the lab was started."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def folder_name(plan: Plan) -> str:
    """The unique name of a plan's folder: np2-bit8-seed1.

    Unusual options are appended; a digest at the end covers options that a name cannot show.
    """
    kind = SERIAL if plan.ranks == 1 else f"np{plan.ranks}-{_readable(plan.compression)}"
    words = [kind, f"seed{plan.seed}"]
    if plan.place != THIS_HOST:
        words.append(_readable(plan.place))
    if plan.epochs != EPOCHS:
        words.append(f"epochs{plan.epochs}")
    is_example = Path(plan.script).resolve() in (SERIAL_EXAMPLE, PARALLEL_EXAMPLE)
    if not is_example:
        words.append(_readable(Path(plan.script).stem))
    unread = [
        "" if is_example else plan.script,
        "" if plan.compression.isalnum() else plan.compression,
        "" if re.fullmatch(r"[\w ]+", plan.place) else plan.place,
        list(plan.arguments) if not is_example or plan.arguments != EXAMPLE_ARGUMENTS else [],
        "" if plan.threads == 1 else plan.threads,
    ]
    if any(unread):
        words.append(hashlib.sha256(json.dumps(unread).encode()).hexdigest()[:6])
    return "-".join(words)


def _readable(text: str) -> str:
    return re.sub(r"\W+", "_", text).strip("_")
