"""A rank of test_collectives_on_hosts.py: trains a small model under every compression at the same time.

Every compression has a model and an optimizer of its own; their steps are interleaved, which takes little
longer than those of one, because a step of a model this small is spent on waiting.
"""

import hashlib
import json
import sys
from pathlib import Path

import torch
from torch import nn

import horovod.torch as hvd

Compression = hvd.Compression
LOOKED_AT = (50, 1000)  # steps after which parameters are compared
COMPRESSIONS = {
    "none": Compression.none,
    "fp16": Compression.fp16,
    "bf16": Compression.bf16,
    "bit16": Compression.bit16(min_elements=0),
    "bit8": Compression.bit8(min_elements=0),
    "bit8 e5m2/32": Compression.bit8(format="e5m2", block_size=32, min_elements=0),
    "bit8 stochastic": Compression.bit8(rounding="stochastic", seed=3, min_elements=0),
    "int8": Compression.int8(min_elements=0),
    "int4 feedback": Compression.int4(error_feedback=True, min_elements=0),
    "int4 lloyd": Compression.int4(rotation="hadamard", levels="lloyd", min_elements=0),
    "int4 stochastic": Compression.int4(rounding="stochastic", error_feedback=True, min_elements=0),
    "topk": Compression.topk(min_elements=0),
    "powersgd": Compression.powersgd(min_elements=0),
}


class Training:
    """A model of some 500 parameters that learns a random function; every rank has its own data."""

    def __init__(self, name: str, compression: object) -> None:
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(16, 20), nn.Tanh(), nn.Linear(20, 8))
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.5)
        named = [(f"{name}.{part}", parameter) for part, parameter in self.model.named_parameters()]
        self.optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=named, compression=compression)

    def digest(self) -> str:
        whole = torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()])
        return hashlib.sha256(whole.numpy().tobytes()).hexdigest()


def main(folder: Path, steps: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    trainings = {name: Training(name, compression) for name, compression in COMPRESSIONS.items()}
    torch.manual_seed(2)
    wanted = torch.randn(16, 8)
    torch.manual_seed(3 + hvd.rank())
    digests, losses = {}, {name: [] for name in trainings}
    for step in range(1, steps + 1):
        inputs = torch.randn(4, 16)
        for name, training in trainings.items():
            training.optimizer.zero_grad()
            loss = nn.functional.mse_loss(training.model(inputs), torch.tanh(inputs @ wanted))
            loss.backward()  # starts the reductions; the other models compute meanwhile
            losses[name].append(loss.item())
        for training in trainings.values():
            training.optimizer.step()
        if step in LOOKED_AT:
            digests[step] = {name: training.digest() for name, training in trainings.items()}
    found = {"digests": digests, "losses": losses}
    (folder / f"rank-{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
