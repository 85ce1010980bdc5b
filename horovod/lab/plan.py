"""From options to the list of runs, with a digest of all other inputs, and the names of their folders."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import horovod
from horovod.common.build_info import native_package
from horovod.common.options import OPTIONS
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
PACKAGE = Path(horovod.__file__).parent
NOT_OF_A_RUN = (PACKAGE / "lab" / "report", PACKAGE / "lab" / "environment.py", PACKAGE / "topology")


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

    def plans(self) -> list[Plan]:
        """All runs, grouped by kind.

        One rank is the run without Horovod: it has no compression, and is the same at every place. PlaceError
        if ranks do not fit into a place.
        """
        kinds = [self._plan(1, "none", THIS_HOST)] if 1 in self.ranks else []
        for place in self.places:
            for ranks in sorted(set(self.ranks) - {1}):
                check_ranks(place, ranks)
                kinds += [self._plan(ranks, each, place) for each in dict.fromkeys(self.compressions)]
        return [replace(kind, seed=seed) for kind in kinds for seed in range(1, self.seeds + 1)]

    def _plan(self, ranks: int, compression: str, place: str) -> Plan:
        """The run of the first seed."""
        script = self.script
        if script is None:
            script = _from_here(SERIAL_EXAMPLE if ranks == 1 else PARALLEL_EXAMPLE)
        return Plan(
            script=script,
            ranks=ranks,
            compression=compression,
            seed=1,
            epochs=self.epochs,
            place=place,
            arguments=self._arguments(),
            threads=self.threads,
            digest=digest(script),
        )

    def _arguments(self) -> tuple[str, ...]:
        given = tuple(self.arguments)
        if self.script is not None:
            return given
        is_between_hosts = any(place != THIS_HOST for place in self.places)
        chosen = any(word.partition("=")[0] == "--model" for word in given)
        model = EXAMPLE_BETWEEN_HOSTS if is_between_hosts and not chosen else ()
        return EXAMPLE_ARGUMENTS + model + given


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


def digest(script: str) -> str:
    """The digest of a run's inputs.

    They are the script and the modules beside it that it imports, this package, PyTorch, Python, the
    machine's name, and the variables that this package reads.
    """
    found = hashlib.sha256()
    for path in sorted(sources(Path(script))):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    found.update(_environment().encode())
    for name in sorted({option.variable for option in OPTIONS if option.variable} & set(os.environ)):
        if name != "HOROVOD_COMPRESSION":  # set for each run
            found.update(f"{name}={os.environ[name]}\0".encode())
    return found.hexdigest()[:16]


def sources(script: Path) -> set[Path]:
    """The script and the modules in its folder that it imports, directly or indirectly."""
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imported(path):
            parts = name.split(".")
            for end in range(1, len(parts) + 1):
                path = script.parent.joinpath(*parts[:end])
                waiting += [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.is_file()]
    return found


def _imported(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:  # its run will report it
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _environment() -> str:
    """This package's files, which may be under development, and the software below it."""
    found = hashlib.sha256()
    for path in sorted([*PACKAGE.rglob("*.py"), *native_package().glob("*.so")]):
        if not any(path.is_relative_to(folder) for folder in NOT_OF_A_RUN):
            name = path.relative_to(PACKAGE) if path.suffix == ".py" else path.name
            found.update(str(name).encode() + path.read_bytes())
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "none"
    return f"{found.hexdigest()} {torch} {platform.python_version()} {platform.node()}"
