"""A training whose rank 1 is killed in its third step; the others print the error."""

import datetime
import os
import signal
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp


def main(compression: str) -> int:
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64)))
    ddp.compress(model, compression)
    for step in range(4):
        loss = model(torch.randn(4, 64)).sum()
        if step == 2 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss.backward()
        except RuntimeError as error:
            print(f"step {step}: {type(error).__name__}: {error}", flush=True)
            return 3
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
