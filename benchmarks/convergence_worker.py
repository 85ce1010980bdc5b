"""The ranks of benchmarks/convergence.py: train every run of a plan, one after the other.

    horovodrun -np 2 python benchmarks/convergence_worker.py PLAN.json [OWN.py]

A plan is a list of {"task", "compression", "seed", "steps", "file"}. Rank 0 writes each run's result to its
file as soon as the run is done. OWN.py runs first and may register compressors.
"""

from __future__ import annotations

import json
import math
import runpy
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import report
import torch
from convergence_tasks import TASKS, Task

import horovod
import horovod.torch as hvd

sys.path.append(str(Path(__file__).resolve().parents[1] / "examples"))

from mnist_training import warm_up_then_decay
from ranks import checksum

SHOWN_DIGITS = 6


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


def train(task: Task, compression: str, seed: int, steps: int) -> dict[str, Any]:
    """Do one run from the first parameters to the final test; the result is equal on all ranks."""
    torch.manual_seed(seed)
    model = task.build()
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    adam = torch.optim.Adam(model.parameters(), lr=task.learning_rate)
    optimizer = hvd.DistributedOptimizer(
        adam,
        named_parameters=model.named_parameters(),
        compression=hvd.Compression.from_text(compression),
    )
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
            progress.curve.append(point(task, model, step, progress))
    return summary(task, model, progress)


def point(task: Task, model: torch.nn.Module, step: int, progress: Progress) -> dict[str, float]:
    """Return the figures of the run after `step` steps, by the quick test."""
    spent = {"step": step, "seconds": progress.seconds, "bytes_sent": progress.bytes_sent}
    return spent | tested(task, model, thorough=False)


def summary(task: Task, model: torch.nn.Module, progress: Progress) -> dict[str, Any]:
    """Return the final test, the mean training loss of all ranks by step, and whether all ranks agree."""
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


def run(plan: list[dict[str, Any]]) -> bool:
    """Do all runs; return whether each of them ended with the same parameters on all ranks."""
    torch.set_num_threads(1)
    hvd.init()
    for compression in {entry["compression"] for entry in plan}:
        hvd.Compression.from_text(compression)  # report errors before the first run, not after an hour
    tasks = {name: TASKS[name](hvd.rank(), hvd.size()) for name in {entry["task"] for entry in plan}}
    agreed = True
    for number, entry in enumerate(plan, start=1):
        task = tasks[entry["task"]]
        made_with = {"ranks": hvd.size(), "horovod": horovod.__version__, **task.facts()}
        figures = train(task, entry["compression"], entry["seed"], entry["steps"])
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
    return agreed


if __name__ == "__main__":
    for own in sys.argv[2:]:
        runpy.run_path(own)
    if not run(json.loads(Path(sys.argv[1]).read_text())):
        sys.exit("some run ended with parameters that differ between ranks")
