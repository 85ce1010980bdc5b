"""A worker that goes from world to world, and writes what its process holds in each.

Started as `resets_rank.py FOLDER RESETS`.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

import horovod.torch as hvd
from horovod.common.elastic import ADDED

FOLDER, RESETS = Path(sys.argv[1]), int(sys.argv[2])


class MallocInformation(ctypes.Structure):
    """The result of glibc's mallinfo2(3): `uordblks` bytes in use, `hblkhd` bytes in separate mappings."""

    _fields_ = [
        *[(name, ctypes.c_size_t) for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks")],
        *[(name, ctypes.c_size_t) for name in ("fsmblks", "uordblks", "fordblks", "keepcost")],
    ]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = MallocInformation


def held() -> dict[str, int]:
    """Return what this process holds, and its mappings of unlinked files of /dev/shm."""
    gc.collect()
    given_out = mallinfo2()
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {
        "kib": (given_out.uordblks + given_out.hblkhd + 64 * sys.getallocatedblocks()) // 1024,
        "descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "python_threads": threading.active_count(),
        "shared": sum("/dev/shm/" in line or "memfd:" in line for line in maps),
        "mappings": len(maps),
    }


hvd.init()
start_rank = hvd.rank()
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Linear(256, 8))
inner = torch.optim.Adam(model.parameters(), lr=1e-6)
optimizer = hvd.DistributedOptimizer(inner, model.named_parameters(), compression=hvd.Compression.bit8)
sampler = hvd.elastic.ElasticSampler(range(1000))
state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, step=0)
seen: list[dict[str, int]] = []


@hvd.elastic.run
def train(state: Any) -> None:
    while len(seen) < RESETS:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(4, 64)).sum().backward()
            optimizer.step()
            state.step += 1
        seen.append(held())
        if hvd.rank() == 0:  # in place of its launcher
            state.on_hosts_updated(float(len(seen)), ADDED)
        state.commit()


train(state)
counted = hvd.metrics()["resets"]
(FOLDER / f"held-{start_rank}.json").write_text(json.dumps({"resets": counted, "held": seen}))
hvd.shutdown()
