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
import math
import os
import re
import runpy
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import report
import torch
from convergence_results import BASELINE, Results, limit_of, paired, section, write_csv
from convergence_tasks import TASKS, Task
from report import Record

import horovod
import horovod.torch as hvd
from horovod.lab.intervals import estimate

HERE = Path(__file__).resolve().parent
COMPRESSIONS = [
    *("fp16", "bit16", "bit8", "int8", "int4:error_feedback=1", "int4"),
    "int4:rotation=hadamard,levels=lloyd,error_feedback=1",
    *("topk", "powersgd"),  # error feedback is their default
]
SHOWN_DIGITS = 6
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
        own = str(args.register.resolve()) if args.register else ""
        report.write_json(written, {"plan": plan, "register": own, "results": folder})
        launcher = [sys.executable, "-m", "horovod.runner", "-np", str(args.np)]
        done = subprocess.run(
            [*launcher, sys.executable, __file__, "--rank", str(written)],
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


# In a rank: it trains every run of a plan; rank 0 writes each result as soon as it is known


@dataclass
class Progress:
    """The figures that one run has measured so far."""

    seconds: float = 0.0  # in steps; tests are left out
    bytes_sent: int = 0  # by this rank to others
    losses: list[float] = field(default_factory=list)  # of this rank's batches
    curve: list[dict[str, float]] = field(default_factory=list)


def tested(task: Task, model: torch.nn.Module, thorough: bool) -> dict[str, float]:
    """Return the mean loss and accuracy on the held-out data of all ranks."""
    loss, right, total = hvd.allreduce(task.score(model, thorough), op=hvd.Sum, name="score").tolist()
    return {"loss": loss / total, "accuracy": right / total}


def trained(task: Task, compression: str, seed: int, steps: int) -> Record:
    """Do one run from the first parameters to the final test; the result is equal on all ranks."""
    from mnist_training import warm_up_then_decay  # of the examples

    torch.manual_seed(seed)
    model = task.build()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    adam = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    options = {"compression": hvd.Compression.from_text(compression)}
    optimizer = hvd.DistributedOptimizer(adam, named_parameters=model.named_parameters(), **options)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, warm_up_then_decay(steps))
    progress = Progress()
    batches = task.batches(seed)
    for step in range(1, steps + 1):
        batch = next(batches)
        started, sent = time.perf_counter(), hvd.metrics()["wire_bytes"]
        optimizer.zero_grad()
        loss = task.loss(model, batch)
        loss.backward()
        optimizer.step()
        schedule.step()
        progress.losses.append(loss.item())
        progress.seconds += time.perf_counter() - started
        progress.bytes_sent += hvd.metrics()["wire_bytes"] - sent
        if step % task.interval == 0 or step == steps:
            spent = {"step": step, "seconds": progress.seconds, "bytes_sent": progress.bytes_sent}
            progress.curve.append(spent | tested(task, model, thorough=False))
    return summary(task, model, progress)


def summary(task: Task, model: torch.nn.Module, progress: Progress) -> Record:
    """Return the final test, the mean training loss of all ranks by step, and whether all ranks agree."""
    from ranks import checksum  # of the examples

    losses = hvd.allreduce(torch.tensor(progress.losses, dtype=torch.float64), name="training_losses")
    checksums = hvd.allgather_object(checksum(model))
    return tested(task, model, thorough=True) | {
        "seconds": progress.seconds,
        "bytes_sent": progress.bytes_sent,
        "curve": progress.curve,
        "training_losses": [round(loss, SHOWN_DIGITS) for loss in losses.tolist()],
        "checksum": checksums[0],
        "identical": len(set(checksums)) == 1,
    }


def rank(job: Record) -> None:
    """Do all runs; the process fails unless each of them ended with the same parameters on all ranks."""
    if job["register"]:
        runpy.run_path(job["register"])
    plan = job["plan"]
    torch.set_num_threads(1)
    hvd.init()
    for compression in {entry["compression"] for entry in plan}:
        hvd.Compression.from_text(compression)  # report errors before the first run, not after an hour
    tasks = {name: TASKS[name](hvd.rank(), hvd.size()) for name in {entry["task"] for entry in plan}}
    agreed = True
    for number, entry in enumerate(plan, start=1):
        task = tasks[entry["task"]]
        made_with = {"ranks": hvd.size(), "horovod": horovod.__version__, **task.facts()}
        figures = trained(task, entry["compression"], entry["seed"], entry["steps"])
        agreed &= figures["identical"]
        if hvd.rank() == 0:
            named = {name: entry[name] for name in ("task", "compression", "seed", "steps")}
            report.write_json(entry["file"], named | made_with | figures)
            spent = f"{figures['seconds']:.1f} s, {figures['bytes_sent'] / 1e6:.2f} MB sent"
            final = f"loss {figures['loss']:.4f}, accuracy {100 * figures['accuracy']:.2f} %"
            trouble = "" if figures["identical"] else ", RANKS DIFFER"
            trouble += "" if math.isfinite(figures["loss"]) else ", DIVERGED"
            name = f"{entry['task']}, {entry['compression']}, seed {entry['seed']}"
            print(f"{number}/{len(plan)}: {name}: {final}, {spent}{trouble}", flush=True)
    hvd.shutdown()
    if not agreed:
        sys.exit("some run ended with parameters that differ between ranks")


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
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
