"""A worker of an elastic job: trains until a file says stop, and writes the notes that `notes` reads.

    worker.py FOLDER

"tries" is written before a step, "step" after it. All ranks have begun a step that some rank finished, so the
samples of workers that died in it are known too.
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
HOST = os.environ.get("HOROVOD_HOSTNAME", "")
START_RANK = int(os.environ.get("HOROVOD_RANK") or os.environ["RANK"])  # horovodrun's, or torchrun's
LOG = open(FOLDER / f"worker-{HOST}-{os.getpid()}-{time.monotonic_ns()}.jsonl", "a")  # noqa: SIM115
SAMPLES, BATCH, BULK = 480, 8, 1 << 19
PAUSE = 0.02  # seconds before each step


def note(what: str, **more: Any) -> None:
    LOG.write(
        json.dumps({"what": what, "at": time.monotonic(), "host": HOST, "pid": os.getpid(), **more}) + "\n"
    )
    LOG.flush()


faulthandler.register(signal.SIGUSR1)  # the watchdog requests the stacks
note("starts", rank=START_RANK)

import torch  # noqa: E402 -- it takes seconds, in which a test can already kill this worker

import horovod.torch as hvd  # noqa: E402
from horovod.common.basics import basics  # noqa: E402

note("imported")


def held() -> dict[str, int]:
    """Return what this process holds now: memory in bytes, and counts."""
    ctypes.CDLL(None).malloc_trim(0)  # malloc keeps freed memory, which does not count as held
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "memory": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "shared": sum(line.split()[1].endswith("s") for line in maps),  # mappings of shared memory
    }


class Worker:
    """`at` receives the point of a step: tests override it to strike there."""

    epochs = sys.maxsize  # at most

    def __init__(self) -> None:
        hvd.init()
        torch.manual_seed(3)
        self.data = torch.randn(SAMPLES, 24)
        layers = (torch.nn.Linear(24, 48), torch.nn.Tanh(), torch.nn.Linear(48, 24))
        self.model = torch.nn.Sequential(*layers)
        self.net: torch.nn.Module = self.model
        self.optimizer = self.new_optimizer()
        self.sampler = hvd.elastic.ElasticSampler(range(SAMPLES), shuffle=True, seed=1)
        self.parts = {"model": self.model, "optimizer": self.optimizer, "sampler": self.sampler}
        self.state = self.new_state(**self.parts, step=0, epoch=0)
        self.state.register_reset_callbacks([lambda: self.at("reset")])

    def new_optimizer(self) -> torch.optim.Optimizer:
        inner = torch.optim.SGD(self.model.parameters(), lr=0.02, momentum=0.9)
        return hvd.DistributedOptimizer(inner, self.model.named_parameters(), compression="bit8")

    def new_state(self, **parts: Any) -> Any:
        return hvd.elastic.TorchState(**parts)

    def at(self, point: str) -> None:
        """Receive the point of a step: idle, step (between backward and step), or reset."""

    def begins(self, **place: Any) -> None:
        note("begins", step=self.state.step, epoch=self.state.epoch, **place)

    def digest(self) -> str:
        values = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        return hashlib.sha256(values.numpy().tobytes()).hexdigest()[:16]

    def train_a_step(self, indices: list[int]) -> None:
        batch = self.data[indices]
        self.optimizer.zero_grad()
        (self.net(batch) - batch).square().mean().backward()
        bulk = hvd.allreduce_async(torch.ones(BULK), name="bulk", op=hvd.Sum)
        self.at("step")
        self.optimizer.step()
        assert hvd.synchronize(bulk)[-1].item() == hvd.size()

    def train_an_epoch(self, **place: Any) -> None:
        state = self.state
        for number in range(0, len(self.sampler), BATCH):
            indices = list(self.sampler)[number : number + BATCH]
            self.at("idle")
            time.sleep(PAUSE)
            note("tries", step=state.step + 1, epoch=state.epoch, samples=indices, **place)
            self.train_a_step(indices)
            self.sampler.record_batch(number // BATCH, BATCH)
            state.step += 1
            note("step", step=state.step, epoch=state.epoch, **place)
            if state.step % 3 == 0:
                state.commit()
        resets = hvd.metrics()["resets"]
        by = {"held": held(), "transport": basics.member().world.transport}
        note("epoch", epoch=state.epoch, digest=self.digest(), resets=resets, **by, **place)

    def train(self, state: Any) -> None:
        world = hvd.broadcast_object(time.monotonic(), root_rank=0, name="world")
        place = {"world": world, "rank": hvd.rank(), "size": hvd.size()}
        self.begins(**place)
        is_over = state.epoch >= self.epochs
        while not is_over:
            self.train_an_epoch(**place)
            stop = hvd.allreduce(torch.tensor(float((FOLDER / "stop").exists())), name="stop", op=hvd.Max)
            state.epoch += 1
            self.sampler.set_epoch(state.epoch)
            state.commit()
            is_over = bool(stop) or state.epoch >= self.epochs

    def run(self) -> None:
        hvd.elastic.run(self.train)(self.state)
        note("ends", digest=self.digest(), step=self.state.step, size=hvd.size())
        hvd.shutdown()


if __name__ == "__main__":
    Worker().run()
