"""Measure the effect of compression on convergence: train two tasks with each compression and several seeds.

    python benchmarks/convergence.py --plots docs --into docs/measured    # an hour of two cores
    python benchmarks/convergence.py --tasks language --compressions bit8 int4:error_feedback=1 --seeds 3

A run is a task, a compression and a seed. Runs of one seed see the same data and begin with the same
parameters, so they are compared in pairs. --out keeps finished runs, one JSON file each, which are not run
again: an interrupted benchmark continues, and more seeds or compressions join the existing ones.

Seeds are added until the 95 % interval of every mean loss difference that has a limit is narrow enough. One
horovodrun job does many runs. docs/benchmarks.md defines the columns.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import report
from convergence_results import BASELINE, Results, limit_of, paired, section, write_csv
from convergence_tasks import TASKS
from report import Record

from horovod.lab.intervals import estimate

HERE = Path(__file__).resolve().parent
COMPRESSIONS = [
    *("fp16", "bit16", "bit8", "int8", "int4:error_feedback=1", "int4"),
    "int4:rotation=hadamard,levels=lloyd,error_feedback=1",
    *("topk", "powersgd"),  # error feedback is their default
]
Run = tuple[str, str, int]  # task, compression, seed


def parse_arguments(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Final loss, accuracy and time to them by compression.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    option = parser.add_argument
    option("--tasks", nargs="+", default=list(TASKS), choices=list(TASKS))
    named = f"as for HOROVOD_COMPRESSION; {BASELINE} is added"
    option("--compressions", nargs="+", default=COMPRESSIONS, help=named)
    option("--register", type=Path, help="a Python file that registers compressors; all ranks run it")
    option("--seeds", type=int, default=5, help="at least so many, from 1 on")
    option("--max-seeds", type=int, default=20, help="at most so many, where intervals stay wide")
    option("--interval", type=float, default=0.4, help="percent: half the width that an interval may have")
    option("--np", type=int, default=2, help="number of ranks")
    option("--steps", type=int, help="of every run, for a try that proves nothing (default: the task's)")
    option("--out", type=Path, default=HERE.parent / "runs" / "convergence", help="folder of finished runs")
    option("--plots", type=Path, help="draw convergence_*.svg into this folder")
    option("--into", type=Path, help="write convergence_<task>.csv, the tables' rows, into this folder")
    option("--finished-only", action="store_true", help="train nothing; show what --out has already")
    option("--time-limit", type=float, default=600, help="seconds for one run")
    return parser.parse_args(words)


def file_of(out: Path, run: Run) -> Path:
    task, compression, seed = run
    return out / task / f"{re.sub('[^a-z0-9.]+', '_', compression)}-seed{seed}.json"


def steps_of(args: argparse.Namespace, task: str) -> int:
    return args.steps or TASKS[task].steps


def finished(args: argparse.Namespace, run: Run) -> Record | None:
    """Return the kept result of a run, or None. End the program if it was made with other settings."""
    file = file_of(args.out, run)
    if not file.exists():
        return None
    record: Record = report.read_json(file)
    wanted = {"compression": run[1], "ranks": args.np, "steps": steps_of(args, run[0])}
    wanted |= TASKS[run[0]](0, args.np).facts()
    others = {name: value for name, value in wanted.items() if record[name] != value}
    differing = [f"{name} {record[name]}, not {value}" for name, value in others.items()]
    if differing:
        sys.exit(f"{file} was made with {' and '.join(differing)}: use another --out, or delete it")
    return record


def train(args: argparse.Namespace, runs: list[Run]) -> None:
    """Do the runs in one job, whose ranks write their results."""
    plan = []
    for run in runs:
        file = file_of(args.out, run)
        file.parent.mkdir(parents=True, exist_ok=True)
        task, compression, seed = run
        entry = {"task": task, "compression": compression, "seed": seed, "steps": steps_of(args, task)}
        plan.append(entry | {"file": str(file.resolve())})
    with tempfile.TemporaryDirectory(prefix="convergence-") as folder:
        written = Path(folder) / "plan.json"
        report.write_json(written, plan)
        own = [str(args.register.resolve())] if args.register else []
        launcher = [sys.executable, "-m", "horovod.runner", "-np", str(args.np)]
        done = subprocess.run(
            [*launcher, sys.executable, str(HERE / "convergence_worker.py"), str(written), *own],
            env=os.environ | {"HOROVOD_DETERMINISTIC": "1"},
            timeout=args.time_limit * len(runs),
            check=False,
        )
    if done.returncode != 0:
        kept = f"runs that it finished are kept in {args.out}"
        sys.exit(f"the job ended with exit code {done.returncode}; {kept}")


def collect(args: argparse.Namespace) -> Results:
    """Return the results of all requested runs, and of the further seeds that they require."""
    names = list(dict.fromkeys([BASELINE, *args.compressions]))
    # Seed by seed, so that an interruption leaves runs that can be compared.
    seeds = range(1, args.seeds + 1)
    wanted = [(task, name, seed) for seed in seeds for task in args.tasks for name in names]
    asked: set[Run] = set()
    results: Results = {task: {} for task in args.tasks}
    while wanted:
        asked |= set(wanted)
        missing = [run for run in wanted if finished(args, run) is None]
        if missing and not args.finished_only:
            train(args, missing)
        add_finished(args, wanted, results)
        without = [task for task in args.tasks if BASELINE not in results[task]]
        if without:
            sys.exit(f"{args.out} has no run of {', '.join(without)} without compression to compare with")
        wanted = [run for run in too_wide(args, results) if run not in asked]
    return results


def add_finished(args: argparse.Namespace, runs: list[Run], results: Results) -> None:
    for task, compression, seed in runs:
        record = finished(args, (task, compression, seed))
        if record is not None:
            results[task].setdefault(compression, {})[seed] = record


def too_wide(args: argparse.Namespace, results: Results) -> list[Run]:
    """Return the next seed's runs of every loss with a limit whose interval is not narrow enough yet."""
    wanted: dict[Run, None] = {}  # a set that keeps its order
    for task, by_compression in results.items():
        if TASKS[task].judged_by != "loss":
            continue
        for compression, runs in by_compression.items():
            samples = paired(runs, by_compression[BASELINE], "loss")
            # The comparison is not "too wide if", because a diverged run has a NaN, which no further seed
            # narrows.
            wide = estimate(samples).half_width > args.interval
            if wide and limit_of(task, compression) is not None and len(runs) < args.max_seeds:
                wanted |= {(task, name, len(runs) + 1): None for name in (BASELINE, compression)}
    return list(wanted)


def main(words: list[str]) -> int:
    args = parse_arguments(words)
    results = collect(args)
    print(f"\n{section(results)}")
    if args.plots:
        import plots

        plots.draw_convergence(results, args.plots)
    for task, by_compression in results.items() if args.into else ():
        write_csv(args.into / f"convergence_{task}.csv", task, by_compression)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
