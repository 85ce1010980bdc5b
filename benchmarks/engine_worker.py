"""The ranks of benchmarks/engine.py."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import launched
import report
import torch
from mpi4py import MPI

import horovod.torch as hvd

BURST = 50  # blocking calls timed together
BACKWARD_SECONDS = 0.1


def latencies(rounds: int) -> list[dict[str, Any]]:
    """Time a blocking allreduce of 4 bytes, in bursts, by MPI and by Horovod in turn."""
    tensor = torch.zeros(1)
    array = tensor.numpy()
    world = MPI.COMM_WORLD
    contenders: dict[str, Callable[[], object]] = {
        "MPI_Allreduce": lambda: world.Allreduce(MPI.IN_PLACE, array),
        "hvd.allreduce_": lambda: hvd.allreduce_(tensor, name="four_bytes", op=hvd.Sum),
    }
    samples: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, call in contenders.items():
            call()
            world.Barrier()
            start = time.perf_counter()
            for _ in range(BURST):
                call()
            elapsed = (time.perf_counter() - start) / BURST
            samples[name].append(world.allreduce(elapsed, MPI.MAX))
            hvd.barrier()
    return [
        {"contender": name, "seconds": median(times), "spread": report.spread(times)}
        for name, times in samples.items()
    ]


def steps(sizes: Sequence[int], count: int, backward: float) -> dict[str, Any]:
    """Measure a step whose gradients arrive one by one over `backward` seconds, without its collectives."""
    gradients = [torch.ones(size) for size in sizes]
    names = [f"gradient.{i}" for i in range(len(sizes))]
    first_buckets = 0
    before: dict[str, int] = {}
    for step in range(-3, count):
        if step == 0:
            hvd.barrier()
            before = hvd.metrics()
        buckets_before = hvd.metrics()["buckets"]
        start = time.perf_counter()
        handles = []
        for i, (name, gradient) in enumerate(zip(names, gradients, strict=True)):
            while time.perf_counter() - start < backward * i / len(names):
                pass  # stands for computing
            handles.append(hvd.allreduce_async_(gradient, name=name))
        first_buckets += step >= 0 and hvd.metrics()["buckets"] > buckets_before
        for handle in handles:
            hvd.synchronize(handle)
    after = hvd.metrics()
    spent = {name: (after[name] - before[name]) / count for name in after}
    return {
        "backward_seconds": backward,
        "steps": count,
        "rounds": spent["announcements"],
        "buckets": spent["buckets"],
        "steps_with_a_bucket_before_the_end": first_buckets / count,
        "overhead_cpu_ms": (spent["engine_cpu_microseconds"] - spent["collective_cpu_microseconds"]) / 1000,
        "collective_cpu_ms": spent["collective_cpu_microseconds"] / 1000,
        "cache_hits": spent["cache_hits"],
    }


def run(sizes: Sequence[int], rounds: int, count: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    rows = latencies(rounds)
    back_to_back, spread_out = steps(sizes, count, 0.0), steps(sizes, count, BACKWARD_SECONDS)
    gathered = hvd.allgather_object([back_to_back, spread_out])
    if hvd.rank() == 0:
        by_kind = [step for ranks in zip(*gathered, strict=True) for step in ranks]
        document = {"latency": rows, "steps": by_kind}
        report.write_json(os.environ[launched.RESULT], document)
    hvd.shutdown()
