"""One worker of a job whose workers are started again; it dies where the task says, once.

    restart_rank.py TASK.json     {"folder", "deaths": [{"rank", "point", "step"}], "epochs", "resume", ..}

A death is of the process that has this rank then. Every worker writes what it does, a line of JSON each.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch

import horovod.torch as hvd

BEGUN = time.monotonic()
BATCH, SAMPLES = 4, 96
TASK: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
FOLDER = Path(TASK["folder"])
LOG = open(FOLDER / f"worker-{os.getpid()}-{time.monotonic_ns()}.jsonl", "a")  # noqa: SIM115


def note(what: str, **more: Any) -> None:
    LOG.write(json.dumps({"what": what, "at": time.monotonic(), "pid": os.getpid(), **more}) + "\n")
    LOG.flush()


def die_at(point: str, step: int) -> None:
    for death in TASK["deaths"]:
        mark = FOLDER / f"died-{death['rank']}-{death['point']}-{death['step']}"
        if (death["rank"], death["point"], death["step"]) == (hvd.rank(), point, step) and not mark.exists():
            mark.touch()
            note("dies", point=point, step=step)
            os.kill(os.getpid(), signal.SIGSTOP if point == "stop" else signal.SIGKILL)


original_rename = os.rename


def rename(source: Any, target: Any) -> None:
    """The end of a commit's way to the host's memory."""
    if str(source).endswith(".part"):
        die_at("commit", state.step)
    original_rename(source, target)


os.rename = rename
hvd.init()
note("starts", rank=hvd.rank(), size=hvd.size(), host=os.environ.get("HOROVOD_HOSTNAME", ""))
torch.manual_seed(5)
data = torch.randn(SAMPLES, 24)
model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 24))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.02 * hvd.size(), momentum=0.9),
    model.named_parameters(),
    compression="bit8",
)
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=True, seed=1)
state = hvd.elastic.TorchState(
    model=model, optimizer=optimizer, sampler=sampler, step=0, epoch=0, **TASK.get("more", {})
)


def adapt() -> None:
    for group in optimizer.param_groups:
        group["lr"] = 0.02 * hvd.size()


state.register_reset_callbacks([adapt])


@hvd.elastic.run
def train(state: Any) -> None:
    kept = FOLDER / f"began-{os.getpid()}-{time.monotonic_ns()}.pt"
    if hvd.rank() == 0:  # for the undisturbed job
        parts = {"model": model, "optimizer": optimizer, "sampler": sampler}
        torch.save(
            {name: each.state_dict() for name, each in parts.items()}
            | {"step": state.step, "epoch": state.epoch},
            kept,
        )
    note("begins", rank=hvd.rank(), size=hvd.size(), step=state.step, epoch=state.epoch, kept=kept.name)
    while state.epoch < TASK["epochs"]:
        for number in range(0, len(sampler), BATCH):
            batch = data[list(sampler)[number : number + BATCH]]
            time.sleep(TASK.get("pause", 0))
            optimizer.zero_grad()
            (model(batch) - batch).square().mean().backward()
            for point in ("step", "stop"):
                die_at(point, state.step)
            optimizer.step()
            sampler.record_batch(number // BATCH, BATCH)
            state.step += 1
            note("step", step=state.step, rank=hvd.rank(), size=hvd.size())
            if TASK.get("raises") == state.step:
                raise RuntimeError("the data is damaged")
            if state.step % 3 == 0:
                state.commit()
            else:
                state.check_host_updates()
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()


if TASK.get("resume"):
    found = torch.load(TASK["resume"], weights_only=False)
    for name, each in {"model": model, "optimizer": optimizer, "sampler": sampler}.items():
        each.load_state_dict(found[name])
    adapt()  # as a job that begins here with so many ranks
    state.step, state.epoch = found["step"], found["epoch"]
    state.save()
train(state)
values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]
note(
    "ends",
    digest=digest,
    step=state.step,
    size=hvd.size(),
    folder=os.environ.get("HOROVOD_COMMITS_FOLDER", ""),
)
hvd.shutdown()
