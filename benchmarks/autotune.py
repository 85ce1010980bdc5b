"""Measure which settings the autotuner finds, from wrong settings and from the defaults, and their gain.

    python benchmarks/autotune.py --list
    python benchmarks/autotune.py --cells wrong                  # made hosts: as root
    python benchmarks/autotune.py --cells defaults --results build/autotune
    python benchmarks/autotune.py --cells cost
    python benchmarks/autotune.py --shown build/autotune

Each cell is a job that tunes itself. It then compares the settings that it found with others in turn: with
the best of a sweep over two knobs if the start was wrong, otherwise with the defaults. A cell that has a
result is not run again.

Waits replace computing, except in the cells of `cost`: their steps are as short as
possible, because there the tuner costs most. These cells run a second time, with known settings.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import contenders
import jobs
import report
import torch
import trained_models
from report import Record

import horovod.torch as hvd
from horovod.common import belongings
from horovod.common.options import BY_VARIABLE
from horovod.made_hosts import MadeHosts
from horovod.torch.autotune import Tuning
from horovod.tune.paired import Gain, gain_of

FUSION, CYCLE, ALGORITHM = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_ALLREDUCE_ALGORITHM"
CONNECTIONS, MESSAGE, BUCKET = "HOROVOD_TCP_CONNECTIONS", "HOROVOD_MESSAGE_KB", "HOROVOD_DDP_BUCKET_MB"

Settings = Mapping[str, str]
SECONDS = {"mnist": 0.02, "resnet50": 0.12, "transformer": 0.12, "vgg16": 0.4}  # of computing in a step
PARTS = 12  # of a model, each of which waits separately
MOST_STEPS = 5000  # limit of the wait for the end of tuning
WATCHED = 10  # steps of a block with or without a tuner that watches; one if steps are long


@dataclass(frozen=True)
class Cell:
    """A job. ``ranks``: on each host; none: two on this machine. ``given``: the settings at the start."""

    name: str
    model: str
    ranks: tuple[int, ...] = ()
    rate: str = "1gbit"
    rtt: str = "none"
    slow: str = ""  # rate of the last host's cable
    face: str = "optimizer"
    given: Settings = field(default_factory=dict)
    swept: tuple[str, ...] = ()
    send_buffer: int = 0  # bytes, at most
    bucket_mb: float = 25
    seconds: float | None = None
    most_steps: int = 400  # steps of tuning
    pairs: int = 0  # 0: as --pairs and --steps specify
    steps: int = 0
    other_process: bool = False  # occupies this machine for 20 seconds of every 40
    again: bool = False  # run again, with the settings that the first run found


def wrong() -> list[Cell]:
    two = {"model": "transformer", "ranks": (1, 1)}
    slow_to_begin = {"given": {CYCLE: "50"}, "swept": (FUSION, CYCLE)}
    gather = {"given": {ALGORITHM: "gather"}, "swept": (ALGORITHM, FUSION)}
    return [
        Cell("fusion threshold 1 KB", **two, given={FUSION: "1024"}, swept=(FUSION, CYCLE)),
        Cell("cycle time 50 ms", **two, **slow_to_begin),
        Cell("gather, 8 ranks", "transformer", (2, 2, 2, 2), **gather),
        Cell(
            "one connection, 20 ms", "mnist", (1, 1), rate="200mbit", rtt="20ms", send_buffer=256 << 10,
            given={CONNECTIONS: "1", "HOROVOD_TRANSPORT": "tcp"}, swept=(CONNECTIONS, MESSAGE),
        ),
        Cell("bucket of 1 MB", **two, face="ddp", bucket_mb=1, given={BUCKET: "0"}, swept=(BUCKET, FUSION)),
        Cell("cycle time 50 ms, a busy machine", **two, **slow_to_begin, other_process=True),
    ]  # fmt: skip


def fewer(model: str, place: str) -> dict[str, int]:
    """Return the options that keep a cell of long steps within eight minutes."""
    if model == "vgg16":  # 553 MB; up to 4 s
        slowest = {"most_steps": 50, "pairs": 6, "steps": 1}
        return slowest if "slow" in place or "4" in place else {"most_steps": 120, "steps": 1}
    return {"most_steps": 200, "steps": 1} if "slow" in place and model != "mnist" else {}


def defaults() -> list[Cell]:
    found = []
    for model in SECONDS:
        places = {"one host": {}, "2 hosts": {"ranks": (1, 1)}, "4 hosts": {"ranks": (1, 1, 1, 1)}}
        places["2 hosts, one slow cable"] = {"ranks": (1, 1), "slow": "300mbit"}
        for place, where in places.items():
            found.append(Cell(f"{model}, {place}", model, **where, **fewer(model, place)))
    return found


def cost() -> list[Cell]:
    places = {"one host": {}, "2 hosts": {"ranks": (1, 1)}, "DDP, one host": {"face": "ddp"}}
    short = {"seconds": 0.001, "most_steps": 200, "again": True}
    return [Cell(f"cost, {name}", "mnist", **short, **more) for name, more in places.items()]


CELLS = {"wrong": wrong, "defaults": defaults, "cost": cost}


def sweep_of(cell: Cell) -> dict[str, list[str]]:
    """Return the values to try for each swept setting: its usual choices, and the cell's start."""
    sweep = {}
    for variable in cell.swept:
        choices = [*BY_VARIABLE[variable].tries]
        given = cell.given.get(variable)
        sweep[variable] = choices if given is None or given in choices else [*choices, given]
    return sweep


def task_of(cell: Cell, words: argparse.Namespace) -> dict[str, Any]:
    return {
        "model": cell.model, "seconds": cell.seconds, "face": cell.face,
        "sweep": sweep_of(cell),
        "defaults": {n: BY_VARIABLE[n].default for n in (FUSION, CYCLE, ALGORITHM)} if cell.swept else {},
        "pairs": cell.pairs or words.pairs, "steps": cell.steps or words.steps, "best_of": 5,
        "bucket_mb": cell.bucket_mb,
    }  # fmt: skip


def run(cell: Cell, words: argparse.Namespace) -> Record:
    """Return the first rank's document; "again" in it has the second run's, if there is one."""
    others = jobs.busy_loop(20, 20) if cell.other_process else nullcontext()
    with tempfile.TemporaryDirectory(prefix="autotune-cache-") as cache, others:
        found = run_once(cell, words, cache)
        return found | {"again": run_once(cell, words, cache)["tuning"]} if cell.again else found


def run_once(cell: Cell, words: argparse.Namespace, cache: str) -> Record:
    settings = jobs.environment() | {
        "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_CACHE": cache,
        "HOROVOD_AUTOTUNE_MAX_STEPS": str(min(cell.most_steps, words.most_steps)), **cell.given,
    }  # fmt: skip
    launcher = "horovodrun --ddp" if cell.face == "ddp" else "horovodrun"
    job = (launcher, __file__, task_of(cell, words), words.limit, settings)
    if not cell.ranks:
        return dict(jobs.run(jobs.Here(), [2], *job)[0])
    with MadeHosts(len(cell.ranks), rate=cell.rate, rtt=cell.rtt) as hosts:
        if cell.slow:
            hosts.rate(cell.slow, hosts.names[-1])
        for name in hosts.names if cell.send_buffer else []:
            hosts.run(name, ["sysctl", "-q", "-w", f"net.ipv4.tcp_wmem=4096 16384 {cell.send_buffer}"])
        return dict(jobs.run(hosts, cell.ranks, *job)[0])


# In a rank: it tunes, then compares the result with other settings in the same job. The contenders run in
# blocks of steps, in turn, and tuning is off in the meantime. Steps wait as long as a device would compute, a
# third of it forward, and gradients become ready in the order of a backward pass.


class Training:
    """A job that tunes itself: steps of a DistributedOptimizer, or of DDP under ddp.compress."""

    def __init__(self, task: Record) -> None:
        self._is_ddp = task["face"] == "ddp"
        self._world = contenders.TorchWorld() if self._is_ddp else contenders.HorovodWorld()
        torch.manual_seed(1)
        shapes, seconds = trained_models.shapes_of(task["model"]), task["seconds"] or SECONDS[task["model"]]
        model = trained_models.waiting(shapes, seconds, PARTS)
        options = {"bucket_cap_mb": task["bucket_mb"]} if self._is_ddp else {}
        way = contenders.HOOK if self._is_ddp else contenders.HOROVOD
        self._trained = contenders.opened(f"{way} bit8", model, **options)
        self.tuning = self._trained.state.tuning if self._is_ddp else hvd.tuning
        self.close = self._world.close
        self._input = torch.ones(1, requires_grad=True)

    def step(self) -> None:
        self._trained.step(self._input, torch.Tensor.sum)

    def run(self, function: Callable[..., Any], *words: Any) -> Any:
        """Call a function in the thread and job of the tuner."""
        return self._trained.state.begin()._job.run(function, *words) if self._is_ddp else function(*words)

    def timed(self, steps: int) -> float:
        """Return the mean seconds of steps."""
        begin = time.perf_counter()
        for _ in range(steps):
            self.step()
        return (time.perf_counter() - begin) / steps

    def block(self, settings: Settings, steps: int) -> float:
        """Return the seconds of a step; the first step after the change does not count."""
        self.run(lambda: belongings.own(Tuning).fix(settings))
        self.step()
        return self.timed(steps)


def rank(task: Record) -> Record:
    """Measure a ``task``, which has a model, seconds, and face ("optimizer" or "ddp").

    It also has sweep (choices by variable), defaults, pairs, steps (of a block), and best_of (the number of
    configurations of the sweep that are measured again).
    """
    training = Training(task)
    spent = _time_spent_tuning()
    begin, count = time.perf_counter(), 0
    while training.tuning()["phase"] != "watching" and count < MOST_STEPS:
        training.step()
        count += 1
    seconds_of_tuning = time.perf_counter() - begin
    found: Record = training.tuning()
    result = {
        "tuning": found,
        "tuning_seconds": seconds_of_tuning,
        "steps_until_watching": count,
        "share_of_the_tuner": sum(spent) / seconds_of_tuning,
        "watching": _watching(training, task),
    }
    swept = _sweep(training, task, found["settings"])
    settings = {"tuned": found["settings"], "default": task["defaults"] or found.get("began_with", {})}
    if swept:
        settings["best of the sweep"] = swept["best"]
    times = _in_turn(settings, task["pairs"], lambda name: training.block(settings[name], task["steps"]))
    training.close()
    return result | {"times": times, "swept": swept}


def _time_spent_tuning() -> list[float]:
    """From now on, collect the seconds of each call of the tuner's Python part at the end of a step."""
    spent: list[float] = []
    original = Tuning.step_ended

    def step_ended(self: Tuning, *words: Any) -> None:
        begin = time.perf_counter()
        original(self, *words)
        spent.append(time.perf_counter() - begin)

    Tuning.step_ended = step_ended  # type: ignore[method-assign]
    return spent


def _in_turn(names: Iterable[str], rounds: int, seconds: Callable[[str], float]) -> dict[str, list[float]]:
    """Return the seconds of each in each round."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _, name in report.in_turn([*times], rounds):
        times[name].append(seconds(name))
    return times


def _watching(training: Training, task: Record) -> dict[str, list[float]]:
    """Return the seconds of a step with and without the watching tuner; all ranks switch together."""
    steps = WATCHED if task["steps"] > 1 else 1
    tuning = training.run(belongings.own, Tuning)

    def seconds(name: str) -> float:
        tuning._is_on = name == "watching"
        return training.timed(steps)

    found = training.run(_in_turn, ["off", "watching"], task["pairs"], seconds)
    tuning._is_on = True
    return found


def _sweep(training: Training, task: Record, rest: Settings) -> Record:
    """Measure all combinations of the knobs once, and the best combinations again, in turn."""
    if not task["sweep"]:
        return {}
    names = list(task["sweep"])
    every = [dict(zip(names, texts, strict=True)) for texts in itertools.product(*task["sweep"].values())]
    once = [training.block({**rest, **each}, task["steps"]) for each in every]
    order = sorted(range(len(every)), key=once.__getitem__)[: task["best_of"]]
    best = {str(number): every[number] for number in order}
    again = _in_turn(best, 5, lambda name: training.block({**rest, **best[name]}, task["steps"]))
    fastest = min(again, key=lambda name: statistics.median(again[name]))
    return {"best": {**rest, **best[fastest]}, "count": len(every), "once": once}


def gain(times: Mapping[str, list[float]], before: str, after: str) -> Gain:
    return gain_of(list(zip(times[before], times[after], strict=True)))


def slower_at_the_start(name: str, document: Mapping[str, Any]) -> str:
    """Return by which factor the cell's start is slower: one block of the sweep, so without an interval."""
    cell = next((cell for cell in wrong() if cell.name == name), None)
    if cell is None or "swept" not in document:
        return ""
    start = tuple(cell.given.get(knob, BY_VARIABLE[knob].default) for knob in cell.swept)
    blocks = dict(zip(itertools.product(*sweep_of(cell).values()), document["swept"]["once"], strict=True))
    return f"{blocks[start] / statistics.median(document['times']['tuned']):.2f}x"


def chosen_text(row: Record) -> str:
    tuning = row["tuning"]
    changed = [
        f"{knob.removeprefix('HOROVOD_').lower()}={text}"
        for knob, text in tuning["settings"].items()
        if text != tuning["began_with"].get(knob)
    ]
    return ", ".join(changed) or "the defaults were right"


def best_text(row: Record) -> str:
    times = row["times"]
    return str(gain(times, "tuned", "best of the sweep")) if "best of the sweep" in times else ""


GAINS: report.Columns = {
    "cell": "{cell}",
    "step": lambda row: report.time_text(statistics.median(row["times"]["tuned"])),
    "the start": lambda row: slower_at_the_start(row["cell"], row),
    "tuned over default (95 %)": lambda row: str(gain(row["times"], "default", "tuned")),
    "best of sweep over tuned": best_text,
    "steps of trials": "{tuning[steps]}",
    "chosen": chosen_text,
}
COSTS: report.Columns = {
    "cell": "{cell}",
    "step": lambda row: report.time_text(statistics.median(row["watching"]["off"])),
    "tuner's share": "{share_of_the_tuner:.2%}",
    "watching over off (95 %)": lambda row: str(gain(row["watching"], "watching", "off")),
    "trials, second time": lambda row: str(row["again"]["steps"]) if row["again"] else "",
    "settings": lambda row: ("the same" if is_same(row, row["again"]) else "others") if row["again"] else "",
}


def is_same(document: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    return bool(document["tuning"]["settings"] == again["settings"])


def shown(folder: Path) -> str:
    paths = sorted(folder.glob("*.json"))
    rows = [{"cell": path.stem, "again": None} | report.read_json(path) for path in paths]
    return f"{report.table_of(rows, GAINS, left=7)}\n\n{report.table_of(rows, COSTS)}"


def arguments(words: list[str]) -> argparse.Namespace:
    about = "What the autotuner finds, and what it is worth."
    parser = report.options(about, "only results list limit", limit=480.0)
    option = parser.add_argument
    option("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    option("--pairs", type=int, default=15, help="blocks of each contender (default 15)")
    option("--steps", type=int, default=3, help="steps of a block (default 3)")
    option("--most-steps", type=int, default=400, help="of tuning (default 400)")
    option("--shown", metavar="FOLDER", help="measure nothing: show these results")
    return parser.parse_args(words)


def measure(cell: Cell, chosen: argparse.Namespace, path: Path) -> bool:
    if not path.exists():
        print(f"{cell.name} ...", flush=True)
        report.write_json(path, run(cell, chosen))
    return True


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    chosen = arguments(words)
    every = [cell for kind in chosen.cells for cell in CELLS[kind]()]
    return jobs.run_cells(chosen, every, measure, shown)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
