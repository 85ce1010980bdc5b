"""One rank of benchmarks/training_step.py: it trains a copy of one model for each contender, in turn."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import report
import torch
import trained_models
from on_gpus.place import CPU, Place, open_place
from on_gpus.stages import settled
from on_hosts.training import digest_of
from torch import nn
from torch.nn import functional

import horovod.torch as hvd
from horovod.torch.step_gradients import SeenGradient

ALONE = "alone"
IN_STEP = ", waits in step"  # follows a compression: step() waits for reductions instead of backward()
WARM_UP = 2  # steps of each contender


@dataclass
class Contender:
    name: str
    model: nn.Module
    step: Callable[[], None]
    seconds: list[float] = field(default_factory=list)
    collective_seconds: list[float] = field(default_factory=list)


def make_contender(
    name: str, model: nn.Module, batch: trained_models.Batch, amp: bool, place: Place
) -> Contender:
    """Return a step as users write it, of a copy of the model."""
    own = copy.deepcopy(model).to(place.device)
    optimizer = torch.optim.SGD(own.parameters(), lr=1e-3, momentum=0.9)
    if name != ALONE:
        # Distinct names, so that no contender removes another's from the response cache.
        named = [(f"{name}.{parameter}", tensor) for parameter, tensor in own.named_parameters()]
        optimizer = hvd.DistributedOptimizer(
            optimizer,
            named_parameters=named,
            compression=getattr(hvd.Compression, name.removesuffix(IN_STEP)),
            wait_in_backward=not name.endswith(IN_STEP),
        )
    inputs, answers = (tensor.to(place.device) for tensor in batch)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(place.device.type, torch.bfloat16, enabled=amp):
            outputs = own(inputs)
        loss = functional.cross_entropy(outputs.flatten(0, -2).float(), answers.flatten())
        loss.backward()
        optimizer.step()

    return Contender(name, own, step)


def collective_microseconds(place: Place) -> int:
    """Return the time that this rank has spent in collectives so far; those on a GPU count its time."""
    if place.is_gpu:
        return settled(place)["gpu_microseconds"]
    return hvd.metrics()["collective_microseconds"]


def measure(contenders: list[Contender], steps: int, rounds: int, place: Place) -> None:
    """Run every contender once per round, in a rotating order, after untimed steps."""
    for contender in contenders:
        for _ in range(WARM_UP):
            contender.step()
    for number in range(rounds):
        shift = number % len(contenders)
        for contender in contenders[shift:] + contenders[:shift]:
            before = collective_microseconds(place)
            hvd.barrier()
            begin = time.perf_counter()
            for _ in range(steps):
                contender.step()
            place.synchronize()
            contender.seconds.append((time.perf_counter() - begin) / steps)
            spent = collective_microseconds(place) - before
            contender.collective_seconds.append(spent / 1e6 / steps)


def check_seconds(model: nn.Module, repetitions: int = 50) -> float:
    """Return the thread time of a step's checks that no code changes gradients during their reduction."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    begin = time.thread_time()
    for _ in range(repetitions):
        seen = [SeenGradient(parameter) for parameter in parameters]  # at the start of their reduction
        for parameter, was in zip(parameters, seen, strict=True):
            was.is_untouched(parameter)
        seen = [SeenGradient(parameter) for parameter in parameters]  # at its end
    return (time.thread_time() - begin) / repetitions


def rows_of(name: str, chosen: argparse.Namespace, place: Place) -> list[dict[str, Any]]:
    """Return a record of each contender. RuntimeError unless all ranks end with the same parameters."""
    torch.manual_seed(1)  # the same model on all ranks
    model = trained_models.build(name, chosen.quick)
    batch = trained_models.batch(name, chosen.batch, 2 + hvd.rank(), chosen.quick)
    waits_in_step = [name + IN_STEP for name in chosen.compressions if chosen.wait_in_step]
    names = [ALONE, *chosen.compressions, *waits_in_step]
    contenders = [make_contender(which, model, batch, chosen.amp, place) for which in names]
    measure(contenders, chosen.steps, chosen.rounds, place)
    rows = []
    for contender in contenders:
        own = (contender.seconds, contender.collective_seconds, digest_of(contender.model))
        seconds, collectives, digests = zip(*hvd.allgather_object(own), strict=True)
        if contender.name != ALONE and len(set(digests)) > 1:
            raise RuntimeError(f"{name} under {contender.name}: ranks ended with different parameters")
        slowest = [max(together) for together in zip(*seconds, strict=True)]
        rows.append(
            {
                "model": f"small {name}" if chosen.quick else name,
                "contender": contender.name,
                "batch": chosen.batch,
                "ranks": hvd.size(),
                "gradient_bytes": sum(parameter.nbytes for parameter in model.parameters()),
                "seconds": median(slowest),
                "check_seconds": 0.0 if contender.name == ALONE else check_seconds(contender.model),
                "spread": report.spread(slowest),
                "samples_per_second": hvd.size() * chosen.batch / median(slowest),
                "collective_seconds": max(median(samples) for samples in collectives),
            }
        )
    return rows


def run(chosen: argparse.Namespace, result: str) -> None:
    """Measure on this rank; rank 0 writes the records to `result`."""
    hvd.init()
    if chosen.device == "cpu":
        torch.set_num_threads(1)
    place = open_place(hvd.rank(), hvd.local_rank()) if chosen.device == "cuda" else CPU
    rows = [row for name in chosen.models for row in rows_of(name, chosen, place)]
    if hvd.rank() == 0:
        facts = {"torch": torch.__version__} | place.facts
        report.write_json(result, {"facts": facts, "rows": rows})
    hvd.shutdown()
