"""One rank of benchmarks/cluster.py: allreduce between hosts, or training steps of one contender."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import contenders
import jobs
import numpy as np
import torch
import trained_models
from report import Record
from torch import nn
from torch.nn import functional

OURS = ("none", "bit16", "bit8", "int8", "int4")
CHECKED = 1 << 20  # elements at the start of each tensor that are compared with NumPy's sum

World = contenders.HorovodWorld | contenders.MpiWorld | contenders.TorchWorld


class NotTheSame(Exception):
    """An out-of-place call returned another sum than the in-place call."""


def run(task: Record) -> Any:
    if task.get("pinned"):
        jobs.pin(jobs.rank_number())
    torch.set_num_threads(1)
    world = opened(task["launcher"])
    found = sums(world, task) if task["part"] == "allreduce" else steps(world, task)
    world.close()
    return found


def opened(launcher: str) -> World:
    if launcher == "horovodrun":
        return contenders.HorovodWorld()
    return contenders.TorchWorld() if launcher == "torch" else contenders.MpiWorld()


def sums(world: World, task: Record) -> list[Record]:
    """Measure on one rank: `repeats` timed calls of every contender at every size, in turn.

    Returns a record per contender and size: seconds and bytes sent of each call, a digest of the sum, the
    NMSE of its beginning, and, for ours, the seconds of as many out-of-place calls, each made after an
    in-place call.
    """
    records = []
    for size in task["sizes"]:
        count = size // 4
        source = torch.from_numpy(contenders.normal(world.rank, count))
        work = torch.empty(count).fill_(0.0)
        tensors = contenders.Tensors(source, work, work)
        calls = {name: world.sums(name, tensors) for name in task["contenders"]}
        kinds = ("seconds", "sent", "seconds_out_of_place")
        found = {name: {"contender": name, "bytes": size} | {kind: [] for kind in kinds} for name in calls}
        for number in range(-task["warm_up"], task["repeats"]):
            for name, (in_place, out_of_place) in calls.items():
                work.copy_(source)
                elapsed, sent, _ = timed(world, in_place)
                if number == -task["warm_up"]:
                    found[name] |= judged(work, world.size)
                if number >= 0:
                    found[name]["seconds"].append(elapsed)
                    found[name]["sent"].append(sent)
                if name not in OURS:
                    continue
                elapsed, _, total = timed(world, out_of_place)
                if number == -task["warm_up"] and not torch.equal(total, work):
                    raise NotTheSame(f"rank {world.rank}: {name}, {size} bytes")
                del total  # the next call may use its memory
                if number >= 0:
                    found[name]["seconds_out_of_place"].append(elapsed)
        records += found.values()
    return records


def timed(world: World, call: Callable[[], Any]) -> tuple[float, int, Any]:
    """Return seconds and bytes sent of a call that all ranks make at the same moment, and its result."""
    world.barrier()
    before, begin = jobs.bytes_sent(), time.perf_counter()
    result = call()
    elapsed = time.perf_counter() - begin
    world.barrier()  # all bytes of this call have arrived
    return elapsed, jobs.bytes_sent() - before, result


def judged(total: torch.Tensor, ranks: int) -> Record:
    """Return the NMSE against NumPy's sum in float64, and a digest to compare ranks by."""
    ours = total.numpy()[:CHECKED]
    exact = np.sum([contenders.normal(rank, len(ours)).astype(np.float64) for rank in range(ranks)], axis=0)
    error = np.square(ours - exact).sum() / np.square(exact).sum()
    return {"nmse": float(error), "digest": zlib.crc32(total.numpy().data)}


def steps(world: World, task: Record) -> Record:
    """Measure on one rank: `warm_up` steps, then `steps` timed steps of one contender.

    Returns seconds and bytes sent of each step, the number of parameters, and a digest of them at the end.
    """
    model, inputs, labels = model_of(task, world.rank)
    name = task["contender"]
    trained = contenders.opened(f"{contenders.HOROVOD} {name}" if name in OURS else name, model)

    def loss_of(outputs: torch.Tensor) -> torch.Tensor:
        return outputs.mean() if labels is None else functional.cross_entropy(outputs, labels)

    for _ in range(task["warm_up"]):
        trained.step(inputs, loss_of)
    world.barrier()
    seconds, sent = [], []
    for _ in range(task["steps"]):
        before, begin = jobs.bytes_sent(), time.perf_counter()
        trained.step(inputs, loss_of)
        seconds.append(time.perf_counter() - begin)
        sent.append(jobs.bytes_sent() - before)
    world.barrier()  # no rank leaves while another still works
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"seconds": seconds, "sent": sent, "parameters": count, "digest": trained_models.digest_of(model)}


def model_of(task: Record, rank: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor | None]:
    """Return a task's model, equal on all ranks, and a batch of this rank: pictures and labels.

    The transformer takes any input and has no labels: its loss is the mean of its output.
    """
    small = task["model"].endswith("small")
    torch.manual_seed(1)
    if task["model"].startswith("transformer"):
        width = 64 if small else 512
        model = trained_models.waiting(trained_models.block_shapes(width) * 8, task["compute"], 8)
        torch.manual_seed(2 + rank)
        return model, torch.randn(task["batch"], width, requires_grad=True), None
    model = trained_models.build("vgg16", small)
    return model, *trained_models.batch("vgg16", task["batch"], 2 + rank, small)
