"""The training of `worker` as torchrun's users write it: DDP, and a checkpoint at each of its commits.

torchrun ... torch_worker.py FOLDER
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
LOG = open(FOLDER / f"worker-{os.uname().nodename}-{os.getpid()}-{time.monotonic_ns()}.jsonl", "a")  # noqa: SIM115
SAMPLES, BATCH, BULK, PAUSE = 480, 8, 1 << 19, 0.02  # as `worker` has them


def note(what: str, **more: Any) -> None:
    line = {"what": what, "at": time.monotonic(), "host": os.uname().nodename, "pid": os.getpid(), **more}
    LOG.write(json.dumps(line) + "\n")
    LOG.flush()


note("starts")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

dist.init_process_group("gloo")
RANK, SIZE = dist.get_rank(), dist.get_world_size()
PLACE = {"rank": RANK, "size": SIZE, "world": float(os.environ["TORCHELASTIC_RESTART_COUNT"])}
torch.manual_seed(3)
data = torch.randn(SAMPLES, 24)
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 24))
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
sampler = torch.utils.data.DistributedSampler(range(SAMPLES), SIZE, RANK, seed=1)  # type: ignore[arg-type]
CHECKPOINT = FOLDER / "checkpoint.pt"
step = 0
if CHECKPOINT.exists():
    found = torch.load(CHECKPOINT, weights_only=True)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    step = found["step"]


def save() -> None:
    if RANK == 0:
        kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(kept, CHECKPOINT.with_suffix(".new"))
        CHECKPOINT.with_suffix(".new").rename(CHECKPOINT)


note("begins", step=step, **PLACE)
STEPS = SAMPLES // SIZE // BATCH  # of an epoch
has_to_stop = torch.zeros(1)
while not has_to_stop:
    sampler.set_epoch(step // STEPS)
    indices = list(sampler)[step % STEPS * BATCH :][:BATCH]
    time.sleep(PAUSE)
    optimizer.zero_grad()
    (model(data[indices]) - data[indices]).square().mean().backward()
    dist.all_reduce(torch.ones(BULK))
    optimizer.step()
    step += 1
    note("step", step=step, **PLACE)
    if step % 3 == 0:
        save()
    has_to_stop = torch.tensor([float((FOLDER / "stop").exists())])
    dist.all_reduce(has_to_stop)
note("ends")
dist.destroy_process_group()
