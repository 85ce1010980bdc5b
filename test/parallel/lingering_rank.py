"""A rank that ends, or as rank 1 stops, sleeps or works when it has left the job: `lingering_rank.py HOW`."""

import atexit
import os
import signal
import sys
import time

import torch

import horovod.torch as hvd

HOW = sys.argv[1]
if (
    HOW == "exit" and os.environ["HOROVOD_RANK"] == "1"
):  # runs after Horovod's handler, which hvd.init() registers
    atexit.register(time.sleep, 1000)
hvd.init()
hvd.allreduce(torch.ones(3))
rank = hvd.rank()
if HOW != "exit":
    hvd.shutdown()
if rank == 1 and HOW == "stop":
    os.kill(os.getpid(), signal.SIGSTOP)
elif rank == 1 and HOW == "sleep":
    time.sleep(1000)
elif rank == 1 and HOW == "work":
    end = time.monotonic() + 8
    while time.monotonic() < end:
        pass
print(f"<{rank} ends>", flush=True)
