"""Results are equal, bit for bit, for every PyTorch, Python and build of the ranks: recorded digests.

They change only when the bytes on the wire or a codec's arithmetic change on purpose. Inputs are NumPy's, and
the model's arithmetic is exact in any order, so nothing here depends on PyTorch's kernels.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from launching import horovodrun

PROGRAM = """
import hashlib
import numpy as np
import torch
import horovod.torch as hvd

hvd.init()
rng = np.random.default_rng(7 + hvd.rank())
values = rng.standard_normal(5000, dtype=np.float32)
COMPRESSIONS = [
    "none", "fp16", "bf16", "bit16", "bit8", "bit8:format=e5m2", "int8", "int8:rounding=stochastic", "int4",
    "int4:rotation=hadamard,levels=lloyd", "topk:ratio=0.05",
]

def say(what, *tensors):
    digest = hashlib.sha256(b"".join(each.detach().contiguous().numpy().tobytes() for each in tensors))
    if hvd.rank() == 0:
        print(what, digest.hexdigest()[:16], flush=True)

for text in COMPRESSIONS:
    given = hvd.Compression.from_text(text)
    say(text, hvd.allreduce(torch.from_numpy(values.copy()), op=hvd.Average, name=text, compression=given))
say("allgather", hvd.allgather(torch.from_numpy(values[: 10 + hvd.rank()].copy())))
say("broadcast", hvd.broadcast(torch.from_numpy(values.copy()), root_rank=1))
say("reducescatter", hvd.reducescatter(torch.from_numpy(values.copy()), op=hvd.Sum))

# The gradient of sum(w * x) is x; a learning rate that is a power of two makes each step's product exact.
weight = torch.nn.Parameter(torch.zeros(50, 100))
optimizer = torch.optim.SGD([weight], lr=0.5)
optimizer = hvd.DistributedOptimizer(
    optimizer, named_parameters=[("weight", weight)], compression=hvd.Compression.int4(error_feedback=True)
)
for step in range(10):
    optimizer.zero_grad()
    (weight * torch.from_numpy(rng.standard_normal((50, 100), dtype=np.float32))).sum().backward()
    optimizer.step()
say("optimizer", weight)
if hvd.rank() == 0:
    print("with torch", torch.__version__)
"""
DIGESTS = """
none e1cd84aa77a06228
fp16 68a4fef3d208e378
bf16 3c56d37f4f2ce97f
bit16 68a4fef3d208e378
bit8 354afc6382ff9ff7
bit8:format=e5m2 6f3a3ea019df7517
int8 1cdb073632e0d442
int8:rounding=stochastic d84f357be94a03c9
int4 6414a99b0b871fbd
int4:rotation=hadamard,levels=lloyd fa059b1d6da99cf6
topk:ratio=0.05 6beb5fc2d564f9f6
allgather 25bf3b8bc6f164de
broadcast 79d9b3ff04ab0359
reducescatter 85c91131fcb989c0
optimizer 0853cf2adbd1f651
"""


@pytest.mark.quick
def test_two_ranks(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    run = horovodrun("-np", "2", sys.executable, str(tmp_path / "program.py"), limit=100)
    assert run.returncode == 0, run.stderr[-3000:]
    said = [line.removeprefix("[0]<stdout>:") for line in run.stdout.splitlines()]
    assert said[-1].startswith("with torch "), run.stdout
    assert said[:-1] == DIGESTS.split("\n")[1:-1], f"{said[-1]}, unlike what was recorded:\n" + "\n".join(
        said
    )
