"""A worker of an elastic job with its own emulated GPU: `gpu_rank.py FOLDER`.

Worker 1 is killed in the middle of operations over NCCL. The others continue, and then go from world to
world.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import torch
from emulated_torch import EmulatedGpu

import horovod.torch as hvd
from horovod.common.elastic import ADDED

FOLDER, RESETS = Path(sys.argv[1]), 11

hvd.init()
start_rank = hvd.rank()
EmulatedGpu(os.environ["HOROVOD_TEST_EMULATED_GPU"], start_rank).install()
state = hvd.elastic.TorchState(step=0)
held: list[list[int]] = []
communicators = ctypes.CDLL(os.environ["HOROVOD_NCCL_LIBRARY"]).emulatedNcclCommunicators


def reduced(step: int, number: int) -> torch.Tensor:
    """Return a rank's contribution: the part of all ranks, by step and number, plus the rank."""
    return torch.full((3000,), float(100 * step + number)) + float(hvd.rank())


@hvd.elastic.run
def train(state: Any) -> None:
    middle = (hvd.size() - 1) / 2
    while hvd.metrics()["resets"] < RESETS:
        for _ in range(3):
            tensors = [reduced(state.step, number) for number in range(8)]
            if start_rank == 1 and state.step == 4:
                threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
            while state.step == 4 and hvd.size() == 3:
                for handle in [hvd.allreduce_async(x, name=f"x{i}") for i, x in enumerate(tensors)]:
                    hvd.synchronize(handle)
            handles = [hvd.allreduce_async(x, name=f"x{i}") for i, x in enumerate(tensors)]
            for number, handle in enumerate(handles):
                found = hvd.synchronize(handle)
                assert torch.equal(found, torch.full((3000,), 100 * state.step + number + middle)), found[:3]
            state.step += 1
        gc.collect()
        maps = Path("/proc/self/maps").read_text().splitlines()
        tasks, opened = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        held.append([communicators(), opened, tasks, sum("/dev/shm/" in line for line in maps)])
        if hvd.size() == 2 and hvd.rank() == 0:
            state.on_hosts_updated(float(state.step), ADDED)
        state.commit()


train(state)
counted = {name: hvd.metrics()[name] for name in ("resets", "losses", "gpu_operations")}
(FOLDER / f"ended-{start_rank}.json").write_text(json.dumps({**counted, "step": state.step, "held": held}))
hvd.shutdown()
