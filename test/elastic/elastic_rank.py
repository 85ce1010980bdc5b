"""One worker of an elastic job whose deaths tests choose, and a worker of the undisturbed job beside it.

    elastic_rank.py TASK.json     the task: see `deaths.Task`

Every worker writes what it does to a file of its own, a line of JSON each, as soon as it has happened.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import torch
from chosen_deaths import TASK, DiesWhenCopied, die_at, note

import horovod.torch as hvd

BULK = 8 << 20  # elements of the tensor that is on its way when a worker dies
BATCH, SAMPLES = 4, 192

hvd.init()


def digest(model: torch.nn.Module) -> str:
    values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


torch.manual_seed(5)
data = torch.randn(SAMPLES, 24)
model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 24))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
    model.named_parameters(),
    compression=TASK["compression"],
)
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=True, seed=1)
state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, sampler=sampler, step=0, epoch=0, bomb=DiesWhenCopied()
)
state.register_reset_callbacks([lambda: die_at("reset", state.step)])


def die_while_others_wait(step: int) -> None:
    """In the middle of an allreduce that the others take part in."""
    for point, size in (("negotiation", 10), ("bulk", BULK)):
        if any(death["point"] == point and death["step"] == step for death in TASK["deaths"]):
            handle = hvd.allreduce_async(torch.ones(size), name=f"{point}.{step}", op=hvd.Sum)
            if point == "bulk":
                time.sleep(0.004)
            die_at(point, step)
            hvd.synchronize(handle)


def train_a_step(indices: list[int]) -> None:
    batch = data[indices]
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    die_at("step", state.step)
    optimizer.step()


@hvd.elastic.run
def train(state: Any) -> None:
    kept = Path(TASK["folder"]) / f"began-{os.getpid()}-{time.monotonic_ns()}.pt"
    if hvd.rank() == 0:  # for the undisturbed job
        torch.save(
            {
                "model": model.state_dict(),
                "optimizer": optimizer.state_dict(),
                "sampler": sampler.state_dict(),
                "step": state.step,
                "epoch": state.epoch,
            },
            kept,
        )
    note("begins", rank=hvd.rank(), size=hvd.size(), step=state.step, epoch=state.epoch, kept=kept.name)
    while state.epoch < TASK["epochs"]:
        for number in range(0, len(sampler), BATCH):
            indices = list(sampler)[number : number + BATCH]
            if TASK["pause"]:
                die_at("idle", state.step)
                time.sleep(TASK["pause"])
            die_while_others_wait(state.step)
            train_a_step(indices)
            sampler.record_batch(number // BATCH, BATCH)
            state.step += 1
            state.bomb.step = state.step
            note(
                "step", step=state.step, epoch=state.epoch, rank=hvd.rank(), size=hvd.size(), samples=indices
            )
            if state.step % TASK["commit_every"] == 0:
                state.commit()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


if TASK["resume"]:
    found = torch.load(TASK["resume"], weights_only=False)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    sampler.load_state_dict(found["sampler"])
    state.step, state.epoch = found["step"], found["epoch"]
    state.save()
train(state)
note("ends", digest=digest(model), step=state.step, size=hvd.size())
hvd.shutdown()
