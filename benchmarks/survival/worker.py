"""A worker of an elastic job: trains until a file says stop, and writes down all that `notes` asks about.

    worker.py FOLDER

"tries" is written before a step, "step" after it: a step that some rank has finished is one that all have
begun, so the samples of those that died in it are known too.
"""

from __future__ import annotations

import ctypes
import faulthandler
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

FOLDER = Path(sys.argv[1])
HOST, START_RANK = os.environ["HOROVOD_HOSTNAME"], int(os.environ["HOROVOD_RANK"])
LOG = open(FOLDER / f"worker-{HOST}-{os.getpid()}-{time.monotonic_ns()}.jsonl", "a")  # noqa: SIM115
SAMPLES, BATCH, BULK = 480, 8, 1 << 19
PAUSE = 0.02  # seconds before each step


def note(what: str, **more: Any) -> None:
    LOG.write(
        json.dumps({"what": what, "at": time.monotonic(), "host": HOST, "pid": os.getpid(), **more}) + "\n"
    )
    LOG.flush()


faulthandler.register(signal.SIGUSR1)  # the watchdog asks where it is
note("starts")

import torch  # noqa: E402 -- it takes its time, in which this worker can be struck already

import horovod.torch as hvd  # noqa: E402

note("imported")
hvd.init()
torch.manual_seed(3)
data = torch.randn(SAMPLES, 24)
model = torch.nn.Sequential(torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 24))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9), model.named_parameters(), compression="bit8"
)
sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=True, seed=1)
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0, epoch=0)


def digest() -> str:
    values = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]


def held() -> dict[str, int]:
    """What this process holds now: memory in bytes, and counts."""
    ctypes.CDLL(None).malloc_trim(0)  # what is free is not held, though malloc keeps it
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared": sum(line.split()[1].endswith("s") for line in maps),  # mappings of shared memory
    }


def train_a_step(indices: list[int]) -> None:
    batch = data[indices]
    optimizer.zero_grad()
    (model(batch) - batch).square().mean().backward()
    bulk = hvd.allreduce_async(torch.ones(BULK), name="bulk", op=hvd.Sum)
    optimizer.step()
    assert hvd.synchronize(bulk)[-1].item() == hvd.size()


@hvd.elastic.run
def train(state: Any) -> None:
    world = hvd.broadcast_object(time.monotonic(), root_rank=0, name="world")
    place = {"world": world, "rank": hvd.rank(), "size": hvd.size()}
    note("begins", step=state.step, epoch=state.epoch, **place)
    while True:
        for number in range(0, len(sampler), BATCH):
            indices = list(sampler)[number : number + BATCH]
            time.sleep(PAUSE)
            note("tries", step=state.step + 1, epoch=state.epoch, samples=indices, **place)
            train_a_step(indices)
            sampler.record_batch(number // BATCH, BATCH)
            state.step += 1
            note("step", step=state.step, epoch=state.epoch, **place)
            if state.step % 3 == 0:
                state.commit()
        note(
            "epoch", epoch=state.epoch, digest=digest(), held=held(), resets=hvd.metrics()["resets"], **place
        )
        stop = hvd.allreduce(torch.tensor(float((FOLDER / "stop").exists())), name="stop", op=hvd.Max)
        state.epoch += 1
        sampler.set_epoch(state.epoch)
        state.commit()
        if stop:
            return


train(state)
note("ends")
hvd.shutdown()
