"""A rank that reduces until an event hits another rank: `tcp_rank.py FOLDER [fork] [steps]`.

It writes FOLDER/started.RANK when it is under way, and prints the error of its operation, and the time. fork:
it has a child that outlives it. steps: it ends regularly after some steps.
"""

import multiprocessing
import os
import sys
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.common.exceptions import HorovodInternalError


def outlive() -> None:
    """Outlive the rank without its pipes, at whose end the test takes the output as complete."""
    os.close(1)
    os.close(2)
    time.sleep(20)


folder = Path(sys.argv[1])
hvd.init()
gradient = torch.ones(300_000)
hvd.allreduce_(gradient, name="gradient", op=hvd.Sum)
if "fork" in sys.argv:  # like workers of a DataLoader, which outlive their rank for a while
    multiprocessing.get_context("fork").Process(target=outlive, daemon=True).start()
(folder / f"started.{hvd.rank()}").touch()
try:
    for _ in range(100 if "steps" in sys.argv else 10**9):
        hvd.allreduce_(gradient, name="gradient", op=hvd.Average)
except HorovodInternalError as error:
    print(f"{time.time():.3f} {error}", flush=True)
    os._exit(3)
hvd.shutdown()
