"""One process of benchmarks/scaling.py: it trains under every contender, in turn with the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from statistics import median

import contenders
import figures
import jobs
import report
import torch
import torch.distributed as dist
import trained_models
from report import Record

CHOOSING = 25  # steps in which ddp.compress(may_turn_off=True) chooses: it measures the first 24


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
        wire = figures.wire_seconds(self.parameters, self.size, self.task["bytes_per_second"])
        size, ratio = figures.batch_for(times, unit, wire, self.task["w_over_c"])
        self.use_batch(size)
        found: Record = {"expected": ratio}
        usual = self.task["picture"] or trained_models.PICTURES.get(self.task["model"])
        if usual:
            found["suggested"] = figures.picture_for(times, wire, self.task["w_over_c"], usual)
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
        for turn, (_, name) in enumerate(report.in_turn(names, self.task["rounds"]), 1):
            found[name].add(self.visit(name, self.task["steps"]))
            if turn % len(names) == 0:
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


def run(task: Record) -> Record:
    """Run one process from its start; return its figures."""
    rank = jobs.rank_number()
    jobs.pin(rank)  # first, because threads that start later inherit it
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = task["device"]
    size = int(task["count"])
    gloo = contenders.TorchWorld(init_method=f"file://{task['results']}/store", rank=rank, world_size=size)
    with_horovod = any(name.startswith(contenders.HOROVOD) for name in task["contenders"])
    if with_horovod:
        import horovod.torch as hvd

        hvd.init()
    process = Process(task, rank)
    expected: Record = {}
    if task["w_over_c"]:
        expected = process.choose_batch()
    else:
        process.use_batch(task["batch"])
    found = process.measure() if figures.is_near(task, expected.get("expected")) else {}
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
