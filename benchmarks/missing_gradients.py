"""Measure a backward pass that lacks a gradient: times of backward() and step().

The cases: all gradients on all ranks, one gradient that the last rank lacks, and an optimizer that no pass
reaches, as in a GAN. Between distant hosts the round trips show:

    python -m horovod.made_hosts up 2 --rate 100mbit --rtt 20ms
    python -m horovod.made_hosts exec h1 horovodrun -np 2 -H h1,h2 python benchmarks/missing_gradients.py
"""

from __future__ import annotations

import statistics
import time

import torch
from torch import nn

import horovod.torch as hvd

STEPS = 15  # of each case
CASES = ["nothing is missing", "a rank lacks a gradient", "another optimizer is not reached"]


def main() -> None:
    hvd.init()
    model = nn.ModuleDict({"trunk": nn.Linear(8, 8), "head": nn.Linear(8, 1)})
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.01), model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    spent: dict[tuple[str, str], list[float]] = {}
    for number in range(3 * STEPS):
        case = CASES[number % 3]
        other = nn.Linear(8, 8)
        beside = torch.optim.SGD(other.parameters(), 0.01)
        if case == CASES[2]:
            beside = hvd.DistributedOptimizer(beside, other.named_parameters(prefix="other"))
        hvd.barrier()
        begin = time.perf_counter()
        features = model["trunk"](torch.ones(2, 8))
        is_short = case == CASES[1] and hvd.rank() == hvd.size() - 1
        (features if is_short else model["head"](features)).sum().backward()
        middle = time.perf_counter()
        optimizer.step()
        end = time.perf_counter()
        optimizer.zero_grad()
        for part, seconds in (("backward", middle - begin), ("step", end - middle)):
            everyones = hvd.allreduce(torch.tensor(seconds), op=hvd.Max)
            spent.setdefault((part, case), []).append(float(everyones))
    if hvd.rank() == 0:
        for case in CASES:
            backward, step = (1e3 * statistics.median(spent[part, case]) for part in ("backward", "step"))
            print(f"{case}: backward {backward:.1f} ms, step {step:.1f} ms")


if __name__ == "__main__":
    main()
