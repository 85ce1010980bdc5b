"""A training step between hosts: one rank's measurements under each contender."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from on_hosts import models
from on_hosts.ranks import Ranks, bytes_sent

LEARNING_RATE = 1e-4
RIVALS = ("DDP", "DDP fp16", "DDP PowerSGD")
ALONE = "alone"  # without communication: the other times minus this one are its cost


def launcher_of(contender: str) -> str:
    return "torch" if contender == ALONE or contender in RIVALS else "horovodrun"


def step_of(
    contender: str, model: nn.Module, prefix: str = "", **ddp_options: Any
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a contender's module to call and its optimizer to step, made as its users make them.

    `prefix` distinguishes the names by which Horovod reduces, if one process has several contenders.
    `ddp_options` are DistributedDataParallel's.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    if contender == ALONE:
        return model, optimizer
    if contender in RIVALS:
        # All ranks have drawn the same parameters: nothing to send before the first step. PowerSGD's hook
        # sums several times for each bucket. Over gloo, sums of two buckets meet in different orders on
        # different ranks, and the job fails ("collective mismatch"), so it gets one bucket.
        if contender == "DDP PowerSGD":
            ddp_options["bucket_cap_mb"] = 4096
        parallel = nn.parallel.DistributedDataParallel(model, init_sync=False, **ddp_options)
        add_hook(contender, parallel)
        return parallel, optimizer
    import horovod.torch as hvd

    compression = hvd.Compression.from_text(contender)
    named = [(prefix + name, parameter) for name, parameter in model.named_parameters()]
    return model, hvd.DistributedOptimizer(optimizer, named_parameters=named, compression=compression)


def add_hook(contender: str, parallel: nn.parallel.DistributedDataParallel) -> None:
    """Register torch's own hooks with their defaults; PowerSGD begins with step 2, not after 1000 steps."""
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if contender == "DDP fp16":
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif contender == "DDP PowerSGD":
        state = powerSGD_hook.PowerSGDState(process_group=None, start_powerSGD_iter=2)
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def run(ranks: Ranks, task: dict[str, Any]) -> dict[str, Any]:
    """Measure on one rank: `warm_up` steps, then `steps` timed steps of one contender.

    Returns seconds and bytes sent of each step, the number of parameters, and a digest of them at the end.
    """
    model, inputs, labels = models.make(task, ranks.rank)
    parallel, optimizer = step_of(task["contender"], model)

    def step() -> None:
        optimizer.zero_grad()
        outputs = parallel(inputs)
        loss = outputs.mean() if labels is None else nn.functional.cross_entropy(outputs, labels)
        loss.backward()
        optimizer.step()

    seconds, sent = timed(step, ranks, task["warm_up"], task["steps"])
    count = sum(parameter.numel() for parameter in model.parameters())
    return {"seconds": seconds, "sent": sent, "parameters": count, "digest": digest_of(model)}


def digest_of(model: nn.Module) -> int:
    """Return a digest, which is equal on two ranks whose parameters have the same bytes."""
    digest = 0
    for parameter in model.parameters():
        digest = zlib.crc32(parameter.detach().cpu().contiguous().numpy().data, digest)
    return digest


def timed(step: Callable[[], None], ranks: Ranks, warm_up: int, steps: int) -> tuple[list[float], list[int]]:
    """Return the seconds of each step, and the bytes that the host sent in the meantime."""
    for _ in range(warm_up):
        step()
    ranks.barrier()
    seconds, sent = [], []
    for _ in range(steps):
        before, begin = bytes_sent(), time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
        sent.append(bytes_sent() - before)
    ranks.barrier()  # no rank leaves while another still works
    return seconds, sent
