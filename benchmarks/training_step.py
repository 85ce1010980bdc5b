"""Measure training steps of ResNet-50 and a transformer under every compression: samples/s, cost of sums.

    python benchmarks/training_step.py                            # 2 ranks on the CPU; some minutes
    python benchmarks/training_step.py --device cuda --np 4       # ranks share GPUs if there are fewer
    python benchmarks/training_step.py --models transformer --compressions none bit8 --out step.json

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from dataclasses import dataclass, field
from statistics import median

import contenders
import gpus
import jobs
import report
import tables
import torch
import trained_models
from contenders import ALONE
from report import Record

import horovod.torch as hvd
from horovod.torch.step_gradients import SeenGradient

MODELS = ("resnet50", "transformer")
COMPRESSIONS = ("none", "fp16", "bf16", "bit16", "bit8", "int8", "int4")
IN_STEP = ", waits in step"  # follows a compression: step() waits for reductions instead of backward()
WARM_UP = 2  # steps of each contender
COLUMNS: report.Columns = {
    "model": "{model}",
    "gradients": "{gradient_bytes:MB} MB",
    "batch": "{batch}",
    "contender": "{contender}",
    "samples/s": "{samples_per_second:.3g}",
    "step": "{seconds:time}",
    "spread": "{spread:.0%}",
    "communication": lambda row: signed(row["added"]) if communicates(row) else "",
    "hidden": lambda row: "" if row["hidden"] is None or not communicates(row) else f"{row['hidden']:.0%}",
    "x none": "{versus_none:.2f}",
    "checks": lambda row: f"{row['check_seconds'] / row['seconds']:.3%}" if communicates(row) else "",
}


def communicates(row: Record) -> bool:
    return bool(row["contender"] != ALONE)


def signed(seconds: float) -> str:
    return ("-" if seconds < 0 else "") + report.time_text(abs(seconds))


def table_of(rows: list[Record]) -> str:
    plain = {row["model"]: row["seconds"] for row in rows if row["contender"] == "none"}

    def versus_none(row: Record) -> float | None:
        return plain[row["model"]] / row["seconds"] if communicates(row) and row["model"] in plain else None

    return report.table_of([row | {"versus_none": versus_none(row)} for row in rows], COLUMNS, left=4)


def add_communication(rows: list[Record]) -> None:
    """Add the time that communication adds to a step, and the part of collectives that computing hides."""
    alone = {row["model"]: row["seconds"] for row in rows if row["contender"] == ALONE}
    for row in rows:
        row["added"] = row["seconds"] - alone[row["model"]]
        collectives = row["collective_seconds"]
        row["hidden"] = min(1.0, max(0.0, 1 - row["added"] / collectives)) if collectives else None


# In a rank: it trains a copy of one model for each contender, in turn


@dataclass
class Copy:
    """A contender's copy of the model, and its times."""

    name: str
    model: torch.nn.Module
    trained: contenders.Trained
    seconds: list[float] = field(default_factory=list)
    collective_seconds: list[float] = field(default_factory=list)


class Model:
    """One model, a batch of it, and the contenders that train it."""

    def __init__(self, name: str, task: Record, rank: int, place: gpus.Place) -> None:
        torch.manual_seed(1)  # the same model on all ranks
        self.name, self.task, self.place = name, task, place
        model = trained_models.build(name, task["quick"])
        self.gradient_bytes = sum(parameter.nbytes for parameter in model.parameters())
        batch = trained_models.batch(name, task["batch"], 2 + rank, task["quick"])
        self.inputs, self.answers = (tensor.to(place.device) for tensor in batch)
        waits_in_step = [text + IN_STEP for text in task["compressions"] if task["wait_in_step"]]
        names = [ALONE, *task["compressions"], *waits_in_step]
        self.copies = [self._copy(which, copy.deepcopy(model).to(place.device)) for which in names]

    def _copy(self, name: str, own: torch.nn.Module) -> Copy:
        if name == ALONE:
            return Copy(name, own, contenders.opened(name, own, momentum=0.9))
        contender = f"{contenders.HOROVOD} {name.removesuffix(IN_STEP)}"
        waits = {"wait_in_backward": not name.endswith(IN_STEP)}
        return Copy(name, own, contenders.opened(contender, own, f"{name}.", momentum=0.9, **waits))

    def step(self, trained: contenders.Trained) -> None:
        trained.optimizer.zero_grad()
        with torch.autocast(self.place.device.type, torch.bfloat16, enabled=self.task["amp"]):
            outputs = trained.module(self.inputs)
        trained_models.loss_of(self.name, outputs, self.answers).backward()
        trained.optimizer.step()

    def collective_microseconds(self) -> int:
        """Return the time that this rank has spent in collectives so far; those on a GPU count its time."""
        if self.place.is_gpu:
            return gpus.settled(self.place)["gpu_microseconds"]
        return hvd.metrics()["collective_microseconds"]

    def measure(self) -> None:
        """Run every contender once per round, after untimed steps."""
        steps = self.task["steps"]
        for each in self.copies * WARM_UP:
            self.step(each.trained)
        for _, each in report.in_turn(self.copies, self.task["rounds"]):
            before = self.collective_microseconds()
            hvd.barrier()
            begin = time.perf_counter()
            for _ in range(steps):
                self.step(each.trained)
            self.place.synchronize()
            each.seconds.append((time.perf_counter() - begin) / steps)
            spent = self.collective_microseconds() - before
            each.collective_seconds.append(spent / 1e6 / steps)

    def row(self, each: Copy) -> Record:
        """Return a contender's record. WrongResult unless all ranks ended with the same parameters."""
        own = (each.seconds, each.collective_seconds, trained_models.digest_of(each.model))
        seconds, collectives, digests = zip(*hvd.allgather_object(own), strict=True)
        if each.name != ALONE:
            tables.same_everywhere(digests, f"{self.name} under {each.name}", "parameters")
        slowest = tables.slowest(seconds)
        return {
            "model": f"small {self.name}" if self.task["quick"] else self.name,
            "contender": each.name,
            "batch": self.task["batch"],
            "ranks": hvd.size(),
            "gradient_bytes": self.gradient_bytes,
            "seconds": median(slowest),
            "check_seconds": 0.0 if each.name == ALONE else check_seconds(each.model),
            "spread": report.spread(slowest),
            "samples_per_second": hvd.size() * self.task["batch"] / median(slowest),
            "collective_seconds": max(median(samples) for samples in collectives),
        }


def check_seconds(model: torch.nn.Module, repetitions: int = 50) -> float:
    """Return the thread time of a step's checks that no code changes gradients during their reduction."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    begin = time.thread_time()
    for _ in range(repetitions):
        seen = [SeenGradient(parameter) for parameter in parameters]  # at the start of their reduction
        for parameter, was in zip(parameters, seen, strict=True):
            was.is_untouched(parameter)
        seen = [SeenGradient(parameter) for parameter in parameters]  # at its end
    return (time.thread_time() - begin) / repetitions


def rank(task: Record) -> Record:
    hvd.init()
    if task["device"] == "cpu":
        torch.set_num_threads(1)
    place = gpus.open_place(hvd.rank(), hvd.local_rank()) if task["device"] == "cuda" else gpus.CPU
    rows = []
    for name in task["models"]:
        model = Model(name, task, hvd.rank(), place)
        model.measure()
        rows += [model.row(each) for each in model.copies]
    hvd.shutdown()
    return {"facts": {"torch": torch.__version__} | place.facts, "rows": rows}


def arguments(words: list[str]) -> argparse.Namespace:
    common = "np device rounds limit out quick"
    parser = report.options("Training steps under every compression.", common, rounds=7, limit=3600.0)
    option = parser.add_argument
    transports = ["auto", "nccl", "host"]
    option("--transport", choices=transports, default="", help="HOROVOD_GPU_TRANSPORT, with --device cuda")
    option("--models", nargs="+", choices=MODELS, default=list(MODELS), help="what to train (default: both)")
    some = ["none", "bit16", "bit8", "int8"]
    option("--compressions", nargs="+", choices=COMPRESSIONS, default=some, help=f"default: {' '.join(some)}")
    option("--batch", type=int, default=8, help="samples per step and rank (default 8)")
    option("--wait-in-step", action="store_true", help="also without waiting at the end of backward()")
    option("--amp", action="store_true", help="compute in bfloat16 where torch.autocast does")
    option("--steps", type=int, default=2, help="steps timed as one (default 2)")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.batch, chosen.steps, chosen.rounds = 2, 1, 1
    if min(chosen.np, chosen.batch, chosen.steps, chosen.rounds) < 1:
        parser.error("--np, --batch, --steps and --rounds are at least 1")
    if chosen.transport and chosen.device == "cpu":
        parser.error("--transport goes with --device cuda")
    return chosen


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    chosen = arguments(words)
    if chosen.device == "cuda":
        gpus.require("training_step.py", "train on")
    facts = report.machine()
    print(f"{chosen.np} ranks, contenders in turn; the slowest rank, median of {chosen.rounds} rounds;")
    print("communication = what it adds to the step of ranks that train each alone; hidden = part of the")
    print("time in collectives that adds nothing; x none = steps per second over those without compression;")
    print("checks = thread time of checks that nobody changes gradients while they are reduced, of a step's.")
    print(report.machine_text(facts), flush=True)
    settings = {"HOROVOD_GPU_TRANSPORT": chosen.transport} if chosen.transport else {}
    document = jobs.run_here(chosen.np, __file__, vars(chosen), **settings)
    add_communication(document["rows"])
    print(report.machine_text(document["facts"]))
    print(table_of(document["rows"]))
    about = {"benchmark": "training step", "machine": facts, "settings": vars(chosen)}
    report.write_json(chosen.out, about | document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
