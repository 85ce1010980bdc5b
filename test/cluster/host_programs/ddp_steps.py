"""Steps of native DDP with 8-bit gradients of 8 MB: `.. FOLDER`.

When all ranks are under way each writes a file there, and waits for `go`; it writes another when it is done.
"""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp

folder, rank = Path(sys.argv[1]), os.environ["RANK"]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(2000, 1000, bias=False))
ddp.compress(model, "bit8")


def step() -> None:
    model(torch.ones(1, 2000)).sum().backward()


step()
(folder / f"under_way.{rank}").touch()
while not (folder / "go").exists():
    time.sleep(0.02)
for _ in range(10):
    step()
(folder / f"done.{rank}").touch()
while not (folder / "end").exists():
    time.sleep(0.02)
dist.destroy_process_group()
