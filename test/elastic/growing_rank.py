"""A worker that trains until a file says stop, and writes its rank and size at every step."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch

import horovod.torch as hvd
from horovod.common.agent_channel import AgentChannel, Place

FOLDER = Path(sys.argv[1])
if (FOLDER / f"meets-{os.environ['HOROVOD_HOSTNAME']}").exists():
    # Dies while it meets the others: the launcher has told it its place, and nobody has seen it since.
    original = AgentChannel.assign

    def assign_and_die(channel: AgentChannel) -> Place:
        original(channel)
        (FOLDER / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("it is dead")

    AgentChannel.assign = assign_and_die  # type: ignore[method-assign]
hvd.init()
model = torch.nn.Linear(8, 8)
optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters())
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0)
name = f"{os.environ['HOROVOD_HOSTNAME']}-{os.environ['HOROVOD_RANK']}-{os.getpid()}"


def copy_a_line() -> None:
    """Of standard input, which the first rank 0 has, and others find at its end."""
    line = sys.stdin.readline()
    (FOLDER / f"read-{os.getpid()}.new").write_text(line)
    (FOLDER / f"read-{os.getpid()}.new").rename(FOLDER / f"read-{os.getpid()}")


threading.Thread(target=copy_a_line, daemon=True).start()


@hvd.elastic.run
def train(state) -> None:  # type: ignore[no-untyped-def]
    while True:
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        state.step += 1
        stop = hvd.allreduce(torch.tensor(float((FOLDER / "stop").exists())), name="stop", op=hvd.Max)
        (FOLDER / f"{name}.new").write_text(f"{hvd.rank()} {hvd.size()} {state.step}")
        (FOLDER / f"{name}.new").rename(FOLDER / f"{name}.txt")
        if stop:
            return
        if (FOLDER / f"raise-{hvd.rank()}").exists():
            raise RuntimeError("the data of this rank is damaged")
        if (FOLDER / f"raise-internal-{hvd.rank()}").exists():
            raise hvd.HorovodInternalError("raised by the function itself")
        state.commit()
        time.sleep(0.02)


train(state)
print(f"<{name} ends as {hvd.rank()} of {hvd.size()}>", flush=True)
