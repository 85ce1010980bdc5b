"""Measure the engine's overhead: latency of a blocking call, negotiation rounds, processor time of a step.

    python benchmarks/engine.py                # 2 ranks, the 161 gradients of ResNet-50; about half a minute
    python benchmarks/engine.py --np 4 --out engine.json

docs/benchmarks.md defines every column.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jobs
import report
import torch
import trained_models
from report import Record

BURST = 50  # blocking calls timed together
BACKWARD_SECONDS = 0.1
LATENCY: report.Columns = {
    "4 bytes, blocking": "{contender}",
    "time": "{seconds:time}",
    "spread": "{spread:.0%}",
    "x MPI": "{ratio:.2f}",
}
STEPS: report.Columns = {
    "gradients": lambda step: "over 100 ms" if step["backward_seconds"] else "back to back",
    "rounds": "{rounds:.1f}",
    "buckets": "{buckets:.1f}",
    "early": "{steps_with_a_bucket_before_the_end:.0%}",
    "cache hits": "{cache_hits:.0f}",
    "overhead": "{overhead_cpu_ms:.2f} ms",
    "collectives": "{collective_cpu_ms:.1f} ms",
}


def gradient_sizes() -> list[int]:
    """Return the number of elements of each of ResNet-50's gradients, in the order of a backward pass."""
    return [math.prod(shape) for shape in trained_models.shapes_of("resnet50")][::-1]


# In a rank


def latencies(rounds: int, mpi: Any) -> list[Record]:
    """Time a blocking allreduce of 4 bytes, in bursts, by MPI and by Horovod in turn."""
    import horovod.torch as hvd

    tensor = torch.zeros(1)
    array = tensor.numpy()
    world = mpi.COMM_WORLD
    contenders: dict[str, Callable[[], object]] = {
        "MPI_Allreduce": lambda: world.Allreduce(mpi.IN_PLACE, array),
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
            samples[name].append(world.allreduce(elapsed, mpi.MAX))
            hvd.barrier()
    return [
        {"contender": name, "seconds": median(times), "spread": report.spread(times)}
        for name, times in samples.items()
    ]


def steps(sizes: list[int], count: int, backward: float) -> Record:
    """Measure a step whose gradients arrive one by one over `backward` seconds, without its collectives."""
    import horovod.torch as hvd

    gradients = {f"gradient.{i}": torch.ones(size) for i, size in enumerate(sizes)}
    first_buckets = 0
    before: dict[str, int] = {}
    for step in range(-3, count):
        if step == 0:
            hvd.barrier()
            before = hvd.metrics()
        buckets_before = hvd.metrics()["buckets"]
        start = time.perf_counter()
        handles = []
        for i, (name, gradient) in enumerate(gradients.items()):
            while time.perf_counter() - start < backward * i / len(gradients):
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


def rank(task: Record) -> Record:
    from mpi4py import MPI  # begins MPI

    import horovod.torch as hvd

    torch.set_num_threads(1)
    hvd.init()
    rows, sizes = latencies(task["rounds"], MPI), gradient_sizes()
    own = [steps(sizes, task["steps"], backward) for backward in (0.0, BACKWARD_SECONDS)]
    gathered = hvd.allgather_object(own)
    hvd.shutdown()
    return {"latency": rows, "steps": [step for ranks in zip(*gathered, strict=True) for step in ranks]}


def tables(document: Record) -> str:
    best = document["latency"][0]["seconds"]
    latency = [row | {"ratio": row["seconds"] / best} for row in document["latency"]]
    return f"{report.table_of(latency, LATENCY)}\n\n{report.table_of(document['steps'], STEPS)}"


def main(words: list[str]) -> int:
    if jobs.ran_as_rank(words, rank):
        return 0
    common = "np rounds limit out quick"
    about = "Latency and overhead of the engine on this host."
    parser = report.options(about, common, rounds=200, limit=300.0)
    parser.add_argument("--steps", type=int, default=50, help="steps of 161 gradients (default 50)")
    chosen = parser.parse_args(words)
    if chosen.quick:
        chosen.rounds = chosen.steps = 2
    facts = report.machine()
    print(f"{chosen.np} ranks. {report.machine_text(facts)}", flush=True)
    document = jobs.run_here(chosen.np, __file__, vars(chosen))
    print(tables(document))
    report.write_json(chosen.out, {"benchmark": "engine", "machine": facts, "ranks": chosen.np} | document)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
