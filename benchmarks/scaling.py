"""Measure samples per second and linearity of native DDP, our compressions under it, and Horovod's API.

    python benchmarks/scaling.py --models resnet50 mnist --processes 1 2 4    # of this host
    python benchmarks/scaling.py --models vgg16 --hosts 2 --rate 1gbit --w-over-c 2.6   # made hosts: as root
    python benchmarks/scaling.py --hosts 2 4 --list                           # what would run
    python benchmarks/scaling.py --shown docs/measured/scaling.json --plots docs

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median

import contenders
import jobs
import psutil
import report
import tables
import torch
import torch.distributed as dist
import trained_models
from report import Record

BATCHES = {"resnet50": 8, "vgg16": 2, "deeplabv3_resnet101": 2, "transformer": 4, "mnist": 64}
CHOOSING = 25  # steps in which ddp.compress(may_turn_off=True) chooses: it measures the first 24


def arguments(words: list[str]) -> argparse.Namespace:
    common = "rounds limit link-seconds out plots list shown quick"
    about = "Scaling of DDP, compressed DDP and Horovod's API."
    parser = report.options(about, common, rounds=5, limit=7200.0)
    option = parser.add_argument
    option("--models", nargs="+", choices=trained_models.MODELS, default=["vgg16"], help="default: vgg16")
    option("--processes", type=int, nargs="+", default=[2], metavar="N", help="of this host (default 2)")
    option("--hosts", type=int, nargs="+", default=[], metavar="N", help="instead: one process on each of N")
    option("--rate", default="1gbit", help="of the hosts' cables (default 1gbit)")
    some = list(contenders.TRAINED)
    both = f"ours, each by both ways (default: {' '.join(some)})"
    option("--compressions", nargs="+", default=some, help=both)
    option("--contenders", nargs="+", default=[], metavar="NAME", help="only these, as --list names them")
    option("--batch", type=int, help="samples per step and process (default: by the model)")
    option("--w-over-c", type=float, metavar="X", help="choose the batch that has this W/C")
    within = "of --w-over-c must W/C be, or nothing is measured (0.3)"
    option("--within", type=float, default=0.3, help=within)
    option("--picture", type=int, metavar="PIXELS", help="side of the pictures (default: by the model)")
    option("--bucket-view", action="store_true", help="all of DDP's with gradient_as_bucket_view=True")
    option("--bucket-mb", type=float, metavar="MB", help="all of DDP's with this bucket_cap_mb (default 25)")
    option("--steps", type=int, default=2, help="steps timed in each visit (default 2)")
    option("--warm-up", type=int, default=2, help="steps off the clock before the first round (default 2)")
    option("--minutes", type=float, default=60.0, help="begin no round that would end later (default 60)")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds, chosen.steps, chosen.link_seconds = 1, 1, 0.2
    chosen.contenders = chosen.contenders or contenders.everyone(chosen.compressions)
    check(parser, chosen)
    return chosen


def check(parser: argparse.ArgumentParser, chosen: argparse.Namespace) -> None:
    """End the program with the reason if a requested job is impossible."""
    counts = [chosen.rounds, chosen.steps, chosen.warm_up, chosen.batch or 1]
    if min(*chosen.processes, *chosen.hosts, *counts) < 1:
        parser.error("--processes, --hosts, --rounds, --steps, --warm-up and --batch are at least 1")
    if chosen.bucket_mb is not None and chosen.bucket_mb <= 0:
        parser.error("--bucket-mb is above 0")
    if chosen.batch and chosen.w_over_c:
        parser.error("--batch and --w-over-c: one chooses the batch, the other is it")
    if chosen.w_over_c is not None and chosen.w_over_c <= 0:
        parser.error("--w-over-c is above 0")
    wrong = list(filter(None, map(contenders.why_not, chosen.contenders)))
    if wrong:
        parser.error("; ".join(wrong))


def plan(chosen: argparse.Namespace) -> list[Record]:
    """Return the tasks of the jobs, in the order in which they run."""
    kind = "hosts" if chosen.hosts else "processes"
    shared = ("bucket_view", "bucket_mb", "picture", "rounds", "steps", "warm_up", "minutes", "within")
    planned = []
    for model in chosen.models:
        size = 4 * trained_models.parameter_count(model, chosen.quick)
        for count in chosen.hosts or chosen.processes:
            names = contenders.in_place(chosen.contenders, kind, count)
            if not names:
                continue
            kept = 3 + sum(map(contenders.copies_kept, names))  # gradients, and parameters twice
            job = {"model": model, "kind": kind, "count": count, "contenders": names, "gradient_bytes": size}
            job |= {"rate": chosen.rate if chosen.hosts else "memory", "memory": count * kept * size}
            job |= {"batch": chosen.batch or (2 if chosen.quick else BATCHES[model]), "small": chosen.quick}
            job["w_over_c"] = chosen.w_over_c if count > 1 else None
            planned.append(job | {name: getattr(chosen, name) for name in shared})
    return planned


def measure(chosen: argparse.Namespace, document: Record) -> None:
    """Run the plan. Each job's figures are in the document, and in --out's file, as soon as it is done."""
    planned = plan(chosen)
    with jobs.place_of(max(chosen.hosts, default=0), chosen.rate, "scaling.py") as place:
        for task in planned:
            if task["memory"] > psutil.virtual_memory().available:
                lacking = f"{task['memory'] / report.GIGA:.1f} GB, and this machine has less left"
                raise SystemExit(f"scaling.py: {tables.where(task)} need {lacking}: name fewer --contenders")
            document["runs"].append(run_job(place, task, chosen))
            report.write_json(chosen.out, document)
            said = f"{task['model']}, {tables.where(task)}: done"
            print(said, file=sys.stderr, flush=True)


def run_job(place: jobs.Place, task: Record, chosen: argparse.Namespace) -> Record:
    """Return one job's figures; measure the wire before and after it. SystemExit if W/C cannot be reached."""
    count, load, is_here = task["count"], os.getloadavg()[0], task["kind"] == "processes"
    rates = [jobs.payload_rate(place, count, chosen.link_seconds)] if count > 1 else [0.0]
    own = task | {"device": "lo" if is_here else jobs.DEVICE, "bytes_per_second": rates[0]}
    ranks = [count] if is_here else [1] * count
    documents = jobs.run(place, ranks, "horovodrun", __file__, own, chosen.limit)
    first = documents[0]
    if not first["contenders"]:
        raise SystemExit(f"scaling.py: {task['model']}, {tables.where(task)}: {not_near(first, task)}")
    if count > 1:
        rates.append(jobs.payload_rate(place, count, chosen.link_seconds))
    return tables.run_of(documents, own | {"bytes_per_second": median(rates)}) | {"load_before": load}


def not_near(found: Record, task: Record) -> str:
    """Return the message of a job that found no batch for the requested W/C."""
    said = (
        f"no batch has a W/C within {task['within']:g} of {task['w_over_c']:g}; "
        f"the nearest, {found['batch']}, has {found['expected']:.2f}"
    )
    if "suggested" not in found:
        return f"{said}. Try another --rate"
    size, picture = found["suggested"]
    return f"{said}. With --picture {picture} a batch of {size} should have it"


# In a process: it trains under every contender, in turn with the others


@dataclass
class Visit:
    """Times and bytes of all steps of one contender; `digests` of its parameters after each visit."""

    seconds: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    digests: list[int] = field(default_factory=list)

    def add(self, other: Visit) -> None:
        self.seconds += other.seconds
        self.sent += other.sent
        self.digests += other.digests


class Process:
    """One of the `size` processes: its model, its batch, and every contender that trains it."""

    def __init__(self, task: Record, rank: int) -> None:
        self.task, self.rank, self.size = task, rank, int(task["count"])
        torch.manual_seed(1)  # the same parameters everywhere
        self.model = trained_models.build(task["model"], task["small"])
        self.tensors = [*self.model.parameters(), *self.model.buffers()]
        self.at_first = [tensor.detach().clone() for tensor in self.tensors]
        self.parameters = sum(parameter.numel() for parameter in self.model.parameters())
        self.trained: dict[str, contenders.Trained] = {}
        self.batch = 0

    def use_batch(self, size: int) -> None:
        """Use batches of this size: every process has other samples, DataParallel has all samples."""
        self.batch = size
        self.inputs, self.answers = self._samples(size)
        if contenders.DATA_PARALLEL in self.task["contenders"] and self.rank == 0:
            self.all_inputs, self.all_answers = self._samples(size * self.size)

    def _samples(self, size: int) -> trained_models.Batch:
        seed, small = 2 + self.rank, self.task["small"]
        return trained_models.batch(self.task["model"], size, seed, small, self.task["picture"])

    def step(self, name: str) -> None:
        whole, model = name == contenders.DATA_PARALLEL, self.task["model"]
        inputs, answers = (self.all_inputs, self.all_answers) if whole else (self.inputs, self.answers)
        self.trained[name].step(inputs, lambda outputs: trained_models.loss_of(model, outputs, answers))

    def visit(self, name: str, steps: int) -> Visit:
        """Train `steps` steps of a contender from the first parameters on; the processes begin together.

        One untimed step before them fills the memory again, which the other contenders have used.
        """
        if name not in self.trained:
            self.trained[name] = self._opened(name)
        with torch.no_grad():
            for tensor, first in zip(self.tensors, self.at_first, strict=True):
                tensor.copy_(first)
        found = Visit()
        takes_part = self.rank == 0 or contenders.trains_in_all(name)
        with all_cores(self.size) if name == contenders.DATA_PARALLEL else nullcontext():
            if takes_part:
                self.step(name)
            dist.barrier()
            before = sent_so_far(self.task)
            for _ in range(steps if takes_part else 0):
                begin = time.perf_counter()
                self.step(name)
                found.seconds.append(time.perf_counter() - begin)
        dist.barrier()  # all bytes of these steps have arrived
        found.sent.append((sent_so_far(self.task) - before) / steps)
        found.digests.append(trained_models.digest_of(self.model))
        self.trained[name].optimizer.zero_grad()  # the next contender uses the memory
        return found

    def _opened(self, name: str) -> contenders.Trained:
        own, buckets = contenders.sharing_memory(self.model), {}
        if name.startswith(("DDP", contenders.HOOK)):
            view, size = self.task["bucket_view"], self.task["bucket_mb"]
            buckets = {"gradient_as_bucket_view": view, "bucket_cap_mb": size}
        return contenders.opened(name, own, prefix=f"{name}.", **buckets)

    def warm_up(self, name: str) -> None:
        """Do untimed steps; contenders that may turn compression off take as many as they need to choose.

        They measure from one step to the next, so no other contender has a turn in the meantime.
        """
        self.visit(name, self.task["warm_up"])
        state = self.trained[name].state
        if name.endswith(contenders.MAY_TURN_OFF) and state.choice is None:
            self.visit(name, CHOOSING)
            if state.choice is None:
                raise RuntimeError(f"{name}: nothing was chosen within {CHOOSING} steps")

    def choices(self) -> dict[str, str]:
        """Return the choices of contenders that may turn compression off, and the times that decided them."""
        states = {name: trained.state for name, trained in self.trained.items() if trained.state is not None}
        return {name: str(state.choice) for name, state in states.items() if state.choice is not None}

    def close(self) -> None:
        for trained in self.trained.values():
            if trained.state is not None:
                trained.state.close()

    def slowest(self, seconds: float) -> float:
        """Return the largest of all processes; equal on all."""
        everyone: list[float] = [0.0] * self.size
        dist.all_gather_object(everyone, seconds)
        return max(everyone)

    def choose_batch(self) -> Record:
        """Return the batch that comes nearest to the requested W/C, and its expected W/C."""
        times, unit = [], trained_models.SMALLEST.get(self.task["model"], 1)
        for size in (1, 2):
            self.use_batch(size * unit)
            self.visit(contenders.ALONE, 1)
            times.append(self.slowest(median(self.visit(contenders.ALONE, 3).seconds)))
        wire = tables.wire_seconds(self.parameters, self.size, self.task["bytes_per_second"])
        size, ratio = tables.batch_for(times, unit, wire, self.task["w_over_c"])
        self.use_batch(size)
        found: Record = {"expected": ratio}
        usual = self.task["picture"] or trained_models.PICTURES.get(self.task["model"])
        if usual:
            found["suggested"] = tables.picture_for(times, wire, self.task["w_over_c"], usual)
        return found

    def measure(self) -> dict[str, Visit]:
        """Run all contenders once per round, after untimed steps.

        A round does not begin if it would probably end after the minutes that the task allows.
        """
        names, found = self.task["contenders"], {name: Visit() for name in self.task["contenders"]}
        begin = time.monotonic()
        for name in names:
            self.warm_up(name)
        round_begin = time.monotonic()
        for _, order in report.rounds_of(names, self.task["rounds"]):
            for name in order:
                found[name].add(self.visit(name, self.task["steps"]))
            now = time.monotonic()
            if self.slowest(now - begin + now - round_begin) > 60 * self.task["minutes"]:
                break
            round_begin = now
        return found


def sent_so_far(task: Record) -> float:
    """Return the bytes that this host sent; on one host by loopback and shared memory, per process."""
    sent = jobs.bytes_sent(task["device"])
    if task["kind"] == "hosts":
        return sent
    import horovod.torch as hvd

    return sent / task["count"] + (hvd.metrics()["wire_bytes"] if hvd.is_initialized() else 0)


@contextmanager
def all_cores(threads: int) -> Iterator[None]:
    """Inside the block torch has so many threads, at most one for each core, which run on any core."""
    pinned, cores = os.sched_getaffinity(0), range(os.cpu_count() or 1)
    os.sched_setaffinity(0, cores)
    torch.set_num_threads(min(threads, len(cores)))
    try:
        yield
    finally:
        torch.set_num_threads(1)
        os.sched_setaffinity(0, pinned)


def rank(task: Record) -> Record:
    number, size = jobs.rank_number(), int(task["count"])
    jobs.pin(number)  # first, because threads that start later inherit it
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = task["device"]
    gloo = contenders.TorchWorld(init_method=f"file://{task['results']}/store", rank=number, world_size=size)
    with_horovod = any(name.startswith(contenders.HOROVOD) for name in task["contenders"])
    if with_horovod:
        import horovod.torch as hvd

        hvd.init()
    process = Process(task, number)
    expected: Record = {}
    if task["w_over_c"]:
        expected = process.choose_batch()
    else:
        process.use_batch(task["batch"])
    found = process.measure() if tables.is_near(task, expected.get("expected")) else {}
    process.close()
    if with_horovod:
        hvd.shutdown()
    gloo.close()
    return {
        "batch": process.batch,
        "parameters": process.parameters,
        "contenders": {name: vars(visit) for name, visit in found.items()},
        "choices": process.choices(),
        "load": os.getloadavg()[0],
        **expected,
    }


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    chosen = arguments(words)
    if chosen.list:
        print(tables.plan_text(plan(chosen)))
        return 0
    if chosen.shown:
        documents = [report.read_json(name) for name in chosen.shown]
        document = documents[0] | {"runs": [run for each in documents for run in each["runs"]]}
    else:
        document = {"benchmark": "scaling", "machine": report.machine(), "runs": []}
        measure(chosen, document)
    if chosen.plots:
        import plots

        plots.draw_scaling(document, chosen.plots)
    print(tables.scaling_text(document))
    report.write_json(chosen.out, document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
