"""Measure which settings the autotuner finds, from wrong settings and from the defaults, and their gain.

    python benchmarks/autotune.py --list
    python benchmarks/autotune.py --cells wrong                  # made hosts: as root
    python benchmarks/autotune.py --cells defaults --results build/autotune
    python benchmarks/autotune.py --cells cost
    python benchmarks/autotune.py --shown build/autotune

Each cell is a job that tunes itself. It then compares the settings that it found with others in turn: with
the best of a sweep over two knobs if the start was wrong, otherwise with the defaults. A cell that has a
result is not run again.

Waits replace computing (tuned/models.py), except in the cells of `cost`: their steps are as short as
possible, because there the tuner costs most. These cells run a second time, with known settings.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report
from on_hosts.jobs import JobFailed, described, environment, said_until_end
from tuned import models

from horovod.common.options import BY_VARIABLE
from horovod.made_hosts import MadeHosts
from horovod.tune.paired import Gain, gain_of

PROGRAM = Path(__file__).resolve()
FUSION, CYCLE, ALGORITHM = "HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_ALLREDUCE_ALGORITHM"
CONNECTIONS, MESSAGE, BUCKET = "HOROVOD_TCP_CONNECTIONS", "HOROVOD_MESSAGE_KB", "HOROVOD_DDP_BUCKET_MB"


@dataclass(frozen=True)
class Cell:
    """A job. ``ranks``: on each host; none: on this machine. ``given``: the settings at the start."""

    name: str
    model: str
    ranks: tuple[int, ...] = ()
    here: int = 2
    rate: str = "1gbit"
    rtt: str = "none"
    slow: str = ""  # rate of the last host's cable
    face: str = "optimizer"
    compression: str = "bit8"
    given: Mapping[str, str] = field(default_factory=dict)
    swept: tuple[str, ...] = ()
    send_buffer: int = 0  # bytes, at most
    bucket_mb: float = 25
    seconds: float | None = None
    most_steps: int = 400  # steps of tuning
    pairs: int = 0  # 0: as --pairs and --steps specify
    steps: int = 0
    other_process: bool = False
    again: bool = False  # run again, with the settings that the first run found


def wrong() -> list[Cell]:
    two = {"model": "transformer", "ranks": (1, 1)}
    return [
        Cell("fusion threshold 1 KB", **two, given={FUSION: "1024"}, swept=(FUSION, CYCLE)),
        Cell("cycle time 50 ms", **two, given={CYCLE: "50"}, swept=(FUSION, CYCLE)),
        Cell(
            "gather, 8 ranks",
            "transformer",
            (2, 2, 2, 2),
            given={ALGORITHM: "gather"},
            swept=(ALGORITHM, FUSION),
        ),
        Cell(
            "one connection, 20 ms", "mnist", (1, 1), rate="200mbit", rtt="20ms", send_buffer=256 << 10,
            given={CONNECTIONS: "1", "HOROVOD_TRANSPORT": "tcp"}, swept=(CONNECTIONS, MESSAGE),
        ),
        Cell("bucket of 1 MB", **two, face="ddp", bucket_mb=1, given={BUCKET: "0"}, swept=(BUCKET, FUSION)),
        Cell(
            "cycle time 50 ms, a busy machine",
            **two,
            given={CYCLE: "50"},
            swept=(FUSION, CYCLE),
            other_process=True,
        ),
    ]  # fmt: skip


def fewer(model: str, place: str) -> dict[str, int]:
    """Return the options that keep a cell of long steps within eight minutes."""
    if model == "vgg16":  # 553 MB; up to 4 s
        slowest = {"most_steps": 50, "pairs": 6, "steps": 1}
        return slowest if "slow" in place or "4" in place else {"most_steps": 120, "steps": 1}
    return {"most_steps": 200, "steps": 1} if "slow" in place and model != "mnist" else {}


def defaults() -> list[Cell]:
    cells = []
    for model in models.SECONDS:
        places = {"one host": {}, "2 hosts": {"ranks": (1, 1)}, "4 hosts": {"ranks": (1, 1, 1, 1)}}
        places["2 hosts, one slow cable"] = {"ranks": (1, 1), "slow": "300mbit"}
        for place, where in places.items():
            cells.append(Cell(f"{model}, {place}", model, **where, **fewer(model, place)))
    return cells


def cost() -> list[Cell]:
    return [
        Cell(f"cost, {name}", "mnist", here=2, seconds=0.001, most_steps=200, again=True, **more)
        for name, more in {
            "one host": {},
            "2 hosts": {"ranks": (1, 1)},
            "DDP, one host": {"face": "ddp"},
        }.items()
    ]


BUSY = """
import time
while True:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        pass
    time.sleep(20)
"""
CELLS = {"wrong": wrong, "defaults": defaults, "cost": cost}


def rank(task_file: str) -> None:
    from tuned import worker

    task = json.loads(Path(task_file).read_text())
    found = worker.run(task)
    report.write_json(f"{task['results']}/rank-{found.pop('rank')}.json", found)


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
        "model": cell.model, "seconds": cell.seconds, "compression": cell.compression, "face": cell.face,
        "sweep": sweep_of(cell),
        "defaults": {n: BY_VARIABLE[n].default for n in (FUSION, CYCLE, ALGORITHM)} if cell.swept else {},
        "pairs": cell.pairs or words.pairs, "steps": cell.steps or words.steps, "best_of": 5,
        "bucket_mb": cell.bucket_mb,
    }  # fmt: skip


def run(cell: Cell, words: argparse.Namespace) -> dict[str, Any]:
    """Return the first rank's document; "again" in it has the second run's, if there is one."""
    with tempfile.TemporaryDirectory(prefix="autotune-cache-") as cache:
        found = run_once(cell, words, cache)
        return found | {"again": run_once(cell, words, cache)["tuning"]} if cell.again else found


def run_once(cell: Cell, words: argparse.Namespace, cache: str) -> dict[str, Any]:
    settings = {
        "HOROVOD_AUTOTUNE": "1", "HOROVOD_AUTOTUNE_CACHE": cache,
        "HOROVOD_AUTOTUNE_MAX_STEPS": str(min(cell.most_steps, words.most_steps)), **cell.given,
    }  # fmt: skip
    count = sum(cell.ranks) or cell.here
    options = ["--ddp"] if cell.face == "ddp" else []
    with described(PROGRAM, "horovodrun", task_of(cell, words)) as job, other_process(cell.other_process):
        start = [sys.executable, "-m", "horovod.runner", *options, "-np", str(count)]
        own = {**environment(), **settings}
        if not cell.ranks:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            said = said_until_end(
                subprocess.Popen([*start, *job.rank], env=own, text=True, errors="replace", **pipes),
                words.limit,
            )
            return first(job.documents(count, cell.name, said))
        with MadeHosts(len(cell.ranks), rate=cell.rate, rtt=cell.rtt) as hosts:
            if cell.slow:
                hosts.rate(cell.slow, hosts.names[-1])
            for name in hosts.names if cell.send_buffer else []:
                hosts.run(name, ["sysctl", "-q", "-w", f"net.ipv4.tcp_wmem=4096 16384 {cell.send_buffer}"])
            where = ",".join(f"{name}:{ranks}" for name, ranks in zip(hosts.names, cell.ranks, strict=True))
            said = said_until_end(
                hosts.start(hosts.names[0], [*start, "-H", where, *job.rank], own), words.limit
            )
            return first(job.documents(count, cell.name, said))


def first(documents: list[Any]) -> dict[str, Any]:
    return dict(documents[0])


@contextmanager
def other_process(wanted: bool) -> Iterator[None]:
    """Occupy this machine for 20 seconds of every 40, like another user's work."""
    if not wanted:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", BUSY])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def gain(times: Mapping[str, list[float]], before: str, after: str) -> Gain:
    return gain_of(list(zip(times[before], times[after], strict=True)))


def slower_at_the_start(name: str, document: Mapping[str, Any]) -> str:
    """Return by which factor the cell's start is slower: one block of the sweep, so without an interval."""
    cells = [cell for cell in wrong() if cell.name == name]
    if not cells or "swept" not in document:
        return ""
    start = tuple(cells[0].given.get(knob, BY_VARIABLE[knob].default) for knob in cells[0].swept)
    blocks = dict(
        zip(itertools.product(*sweep_of(cells[0]).values()), document["swept"]["once"], strict=True)
    )
    return f"{blocks[start] / statistics.median(document['times']['tuned']):.2f}x"


def rows_of(found: Mapping[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for name, document in found.items():
        times, tuning = document["times"], document["tuning"]
        changed = [
            f"{knob.removeprefix('HOROVOD_').lower()}={text}"
            for knob, text in tuning["settings"].items()
            if text != tuning["began_with"].get(knob)
        ]
        best = str(gain(times, "tuned", "best of the sweep")) if "best of the sweep" in times else ""
        rows.append(
            [
                name,
                report.time_text(statistics.median(times["tuned"])),
                slower_at_the_start(name, document),
                str(gain(times, "default", "tuned")),
                best,
                str(tuning["steps"]),
                ", ".join(changed) or "the defaults were right",
            ]
        )
    return rows


HEADINGS = [
    "cell",
    "step",
    "the start",
    "tuned over default (95 %)",
    "best of sweep over tuned",
    "steps of trials",
    "chosen",
]


def costs_of(found: Mapping[str, dict[str, Any]]) -> list[list[str]]:
    rows = []
    for name, document in found.items():
        watching, again = document["watching"], document.get("again")
        slower = gain(watching, "watching", "off")
        second = (
            [str(again["steps"]), "the same" if is_same(document, again) else "others"] if again else ["", ""]
        )
        share = f"{document['share_of_the_tuner']:.2%}"
        rows.append([name, report.time_text(statistics.median(watching["off"])), share, str(slower), *second])
    return rows


def is_same(document: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    return bool(document["tuning"]["settings"] == again["settings"])


COSTS = ["cell", "step", "tuner's share", "watching over off (95 %)", "trials, second time", "settings"]


def shown(folder: Path) -> str:
    found = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    gains = report.table(HEADINGS, rows_of(found), left=7)
    return f"{gains}\n\n{report.table(COSTS, costs_of(found), left=1)}"


def arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the autotuner finds, and what it is worth.")
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="these cells, by the beginning of their names"
    )
    parser.add_argument("--pairs", type=int, default=15, help="blocks of each contender (default 15)")
    parser.add_argument("--steps", type=int, default=3, help="steps of a block (default 3)")
    parser.add_argument("--most-steps", type=int, default=400, help="of tuning (default 400)")
    parser.add_argument("--limit", type=float, default=480, help="seconds of a cell (default 480)")
    parser.add_argument("--results", type=Path, help="folder of results, which are not made again")
    parser.add_argument("--list", action="store_true", help="name the cells, and end")
    parser.add_argument(
        "--shown", type=Path, metavar="FOLDER", help="print the table of these results, and end"
    )
    return parser.parse_args(words)


def main(words: list[str]) -> int:
    if words[:1] == ["--rank"]:
        rank(words[1])
        return 0
    chosen = arguments(words)
    if chosen.shown:
        print(shown(chosen.shown))
        return 0
    cells = [cell for kind in chosen.cells for cell in CELLS[kind]()]
    if chosen.only:
        cells = [cell for cell in cells if cell.name.startswith(tuple(chosen.only))]
    if chosen.list:
        print("\n".join(cell.name for cell in cells))
        return 0
    if chosen.results:
        return measure(cells, chosen, chosen.results)
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        return measure(cells, chosen, Path(folder))


def measure(cells: list[Cell], words: argparse.Namespace, folder: Path) -> int:
    """Measure the cells that have no results yet. Return the exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for cell in cells:
        path = folder / f"{cell.name}.json"
        if path.exists():
            continue
        print(f"{cell.name} ...", flush=True)
        try:
            report.write_json(str(path), run(cell, words))
        except JobFailed as error:
            failed += 1
            print(error, file=sys.stderr)
    print(shown(folder))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
