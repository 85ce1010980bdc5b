"""The program that wrote the checkpoints in this folder, with version 0.29.0, and its training:

    horovodrun -np 2 python test/single/torch/stored_checkpoints/stored_training.py FOLDER

The files never change: later releases must read them. A new format gets a new file in this folder, and code
here that writes it.

Gradients come from NumPy, and a step's arithmetic is exact in any order, as in test_every_torch.py.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import horovod.torch as hvd
from horovod.torch import ddp

FOLDER = Path(__file__).parent
SIZE = 2  # ranks
SCALE = 4.0  # of the loss, which error feedback records
# Compressors whose state is kept by the core, by Python, and by the compressor itself.
COMPRESSION = {
    "coarse": "int4:rounding=stochastic,error_feedback=1,min_elements=0",
    "sparse": "topk:ratio=0.2,min_elements=0",
    "factors": "powersgd:rank=1,min_elements=0",
}
# Digest of the weights one step after the checkpoint. As in test_every_torch.py, it changes only if a codec's
# bytes change on purpose; the checkpoints stay.
DIGEST = "bf688fc226bf93cf"
ALGORITHM = "scatter"  # sums are compressed too, and have their own error


class Weights(torch.nn.Module):
    """A parameter for each compressor, with given gradients."""

    def __init__(self) -> None:
        super().__init__()
        for name in COMPRESSION:
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(4, 8)))

    def forward(self, rank: int, step: int) -> torch.Tensor:
        rng = np.random.default_rng([rank, step])
        drawn = [torch.from_numpy(rng.standard_normal((4, 8), dtype=np.float32)) for _ in COMPRESSION]
        return torch.stack([(w * x).sum() for w, x in zip(self.parameters(), drawn, strict=True)]).sum()


class Training:
    """The training with a DistributedOptimizer (``by`` "hvd") or under ddp.compress ("ddp")."""

    def __init__(self, by: str, rank: int) -> None:
        self.rank = rank
        self.weights = Weights()
        self.model: torch.nn.Module = self.weights
        self.optimizer: Any = torch.optim.SGD(self.weights.parameters(), lr=0.5)
        if by == "hvd":
            named = self.weights.named_parameters()
            self.optimizer = hvd.DistributedOptimizer(self.optimizer, named, compression=COMPRESSION)
            self.keeps: Any = self.optimizer
        else:
            self.model = DistributedDataParallel(self.weights)
            self.keeps = ddp.compress(self.model, COMPRESSION, algorithm=ALGORITHM)
        self.keeps.set_loss_scale(SCALE)

    def run(self, steps: range) -> None:
        for step in steps:
            self.optimizer.zero_grad()
            self.model(self.rank, step).backward()
            self.optimizer.step()

    def saved(self) -> dict[str, Any]:
        """Load on all ranks what rank 0 has. Collective."""
        self.keeps.consolidate_residuals()
        return {"weights": self.weights.state_dict(), "kept": self.keeps.state_dict()}

    def load(self, checkpoint: dict[str, Any]) -> None:
        self.weights.load_state_dict(checkpoint["weights"])
        self.keeps.load_state_dict(checkpoint["kept"])

    def digest(self) -> str:
        """A digest of the weights with portable bits: powersgd's depend on PyTorch's kernels."""
        exact = (self.weights.coarse, self.weights.sparse)
        return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in exact)).hexdigest()[:16]


def read(by: str) -> dict[str, Any]:
    checkpoint = torch.load(FOLDER / f"{by}.pt", weights_only=True)
    assert isinstance(checkpoint, dict)
    return checkpoint


def main() -> None:
    os.environ["HOROVOD_ALLREDUCE_ALGORITHM"] = ALGORITHM
    hvd.init()
    dist.init_process_group(
        "gloo", init_method=f"file://{sys.argv[1]}/meeting", rank=hvd.rank(), world_size=hvd.size()
    )
    for by in ("hvd", "ddp"):
        training = Training(by, hvd.rank())
        training.run(range(3))
        checkpoint = training.saved()
        if hvd.rank() == 0:
            torch.save(checkpoint, Path(sys.argv[1]) / f"{by}.pt")
        training.run(range(3, 4))
        if hvd.rank() == 0:
            print(by, training.digest())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
