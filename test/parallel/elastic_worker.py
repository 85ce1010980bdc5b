"""A worker of an elastic job: `elastic_worker.py NAME PORT FOLDER`, with torch's store at 127.0.0.1:PORT.

The store stands for a launcher. World N is `world/N`, a list of names by rank; a worker that needs the next
world sets `asks/NAME`. ELASTIC_TEST_DEATHS lists workers and the points at which they die, as in "w1 bulk 3,
w2 step 5"; ELASTIC_TEST_START is a file to start from. Each call of the function writes its start, and the
end is written too.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import horovod.torch as hvd
from horovod import _native as native
from horovod.common import jobs
from horovod.common.rendezvous.meeting import open_over_tcp
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of

STEPS = 14
BULK = 12_000_000  # elements of the tensor in transfer when a worker dies
NAME, PORT, FOLDER = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
DEATHS = [tuple(each.split()) for each in os.environ.get("ELASTIC_TEST_DEATHS", "").split(",") if each]
STORE: Any = dist.TCPStore(  # type: ignore[attr-defined]
    "127.0.0.1", PORT, is_master=False, timeout=datetime.timedelta(seconds=60)
)
world = 0  # the last world that this worker received


def die(point: str, step: int) -> bool:
    """Kill this process, if the variable lists this point."""
    if (NAME, point, str(step)) not in DEATHS:
        return False
    STORE.set(f"dies/{NAME}", str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)
    return True


def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
    """Open the next world that has this worker in it."""
    global world
    die("reset", world)
    STORE.add(f"asks/{NAME}", 1)
    while True:
        while not STORE.check([f"world/{world + 1}"]):
            time.sleep(0.002)
        world += 1
        names = json.loads(STORE.get(f"world/{world}"))
        if NAME in names:
            break
    meeting = StoreRendezvous(
        dist.PrefixStore(str(world), STORE),
        assignment_of(names.index(NAME), len(names), []),
        "the test's store",
        "127.0.0.1",
        seconds=3,
    )
    die("meeting", world)
    return open_over_tcp(settings, meeting)


class DyingState(hvd.elastic.TorchState):
    def _content(self) -> dict[str, Any]:
        content = super()._content()
        die("commit", getattr(self, "step", -1))
        return content


def train(state: Any) -> None:
    """Train; each rank's data depend only on its rank and the step."""
    if hvd.rank() == 0:
        torch.save(contents(state), FOLDER / f"start.{world}")
    hvd.allreduce(torch.ones(1), name="first")
    print(json.dumps({"event": "goes on", "world": world, "time": time.time()}), flush=True)
    while state.step < STEPS:
        if any(point == "idle" and step == str(state.step) for _, point, step in DEATHS):
            time.sleep(0.1)
            die("idle", state.step)
            time.sleep(0.3)
        if any(point == "bulk" and step == str(state.step) for _, point, step in DEATHS):
            threading.Timer(0.02, die, ("bulk", state.step)).start()
            hvd.allreduce(torch.ones(BULK), name="bulk")
        generator = torch.Generator().manual_seed(1000 * state.step + hvd.rank())
        state.optimizer.zero_grad()
        state.model(torch.randn(8, 40, generator=generator)).pow(2).mean().backward()
        die("step", state.step)
        if (NAME, "negotiation", str(state.step)) in DEATHS:
            time.sleep(0.2)  # the others request the next world, and wait for this worker
            die("negotiation", state.step)
        hvd.allreduce(torch.ones(3), name="loss")
        state.optimizer.step()
        state.step += 1
        state.commit()


def contents(state: Any) -> dict[str, Any]:
    return {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict(), "step": state.step}


def main() -> None:
    jobs.current().open_world = open_world
    hvd.init()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7))
    plain = torch.optim.Adam(model.parameters(), lr=0.01)
    optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
    state = DyingState(model=model, optimizer=optimizer, step=0)
    if "ELASTIC_TEST_START" in os.environ:
        start = torch.load(os.environ["ELASTIC_TEST_START"], weights_only=True)
        model.load_state_dict(start["model"])
        optimizer.load_state_dict(start["optimizer"])
        state.step = start["step"]
        state.save()
    hvd.elastic.run(train)(state)
    torch.save(contents(state), FOLDER / f"end.{NAME}")
    opened = len(os.listdir("/proc/self/fd"))
    print(json.dumps({"event": "ends", "resets": hvd.metrics()["resets"], "descriptors": opened}), flush=True)
    hvd.barrier()
    hvd.shutdown()


if __name__ == "__main__":
    main()
