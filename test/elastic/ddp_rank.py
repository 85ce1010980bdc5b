"""A worker of an elastic job whose function makes a process group, and a DDP model, in each world.

    ddp_rank.py TASK.json     {"way": ..., "folder": ..., "victim": start rank, "step": ..., "resume": ...}

Ways: "plain" and "compress" over gloo, or the "backend" of ours. What it does it writes to a file of its own.
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
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod.torch import ddp

TASK: dict[str, Any] = json.loads(Path(sys.argv[1]).read_text())
START_RANK = int(os.environ["HOROVOD_RANK"])
LOG = open(Path(TASK["folder"]) / f"worker-{START_RANK}-{os.getpid()}.jsonl", "a")  # noqa: SIM115
STEPS = 12

hvd.init()
torch.manual_seed(3)
module = torch.nn.Sequential(torch.nn.Linear(30, 90), torch.nn.Tanh(), torch.nn.Linear(90, 5))
optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
state = hvd.elastic.TorchState(module, optimizer, step=0)


def note(what: str, **more: Any) -> None:
    LOG.write(json.dumps({"what": what, "at": time.monotonic(), "start_rank": START_RANK, **more}) + "\n")
    LOG.flush()


def digest() -> str:
    values = torch.cat([parameter.detach().flatten() for parameter in module.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def wrapped() -> DistributedDataParallel:
    hvd.elastic.init_process_group("horovod" if TASK["way"] == "backend" else "gloo")
    model = DistributedDataParallel(state.model)
    if TASK["way"] == "compress":
        ddp.compress(model, "bit8")
    return model


@hvd.elastic.run
def train(state: Any) -> None:
    model = wrapped()
    assert dist.get_world_size() == hvd.size() and dist.get_rank() == hvd.rank()
    kept = Path(TASK["folder"]) / f"began-{os.getpid()}-{time.monotonic_ns()}.pt"
    if hvd.rank() == 0:
        torch.save([module.state_dict(), optimizer.state_dict(), state.step], kept)
    note("begins", rank=hvd.rank(), size=hvd.size(), step=state.step, kept=kept.name)
    while state.step < STEPS:
        generator = torch.Generator().manual_seed(100 * state.step + hvd.rank())
        optimizer.zero_grad()
        loss = model(torch.randn(8, 30, generator=generator)).square().mean()
        if (START_RANK, state.step) == (TASK["victim"], TASK["step"]):
            note("dies")
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        if TASK.get("raises") and START_RANK == 0 and state.step == 5:
            raise RuntimeError("Connection closed by peer: of a database of the script's own")
        optimizer.step()
        state.step += 1
        if state.step % 3 == 0:
            state.commit()


if TASK["resume"]:
    found = torch.load(TASK["resume"], weights_only=False)
    module.load_state_dict(found[0])
    optimizer.load_state_dict(found[1])
    state.step = found[2]
    state.save()
train(state)
note("ends", digest=digest(), size=hvd.size(), step=state.step, sockets=len(os.listdir("/proc/self/fd")))
if dist.is_initialized():
    dist.destroy_process_group()
hvd.shutdown()
