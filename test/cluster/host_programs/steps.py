"""A rank of test_collectives_on_hosts.py: trains a small layer under every compression at the same time.

A rule chooses a separate layer for every compression, and all layers are one model. Their reductions overlap,
which takes little longer than the reductions of one layer, because a step this small mostly waits.
"""

import hashlib
import json
import os
import sys
from pathlib import Path

import torch

import horovod.torch as hvd

Compression = hvd.Compression
# Steps after which parameters are compared.
LOOKED_AT = (50, int(os.environ.get("HOROVOD_TEST_STEPS", "150")))
SHAPE = (16, 20)
COMPRESSIONS = {
    "none": Compression.none,
    "fp16": Compression.fp16,
    "bf16": Compression.bf16,
    "bit16": Compression.bit16(min_elements=0),
    "bit8": Compression.bit8(min_elements=0),
    "bit8_e5m2_32": Compression.bit8(format="e5m2", block_size=32, min_elements=0),
    "bit8_stochastic": Compression.bit8(rounding="stochastic", seed=3, min_elements=0),
    "int8": Compression.int8(min_elements=0),
    "int4_feedback": Compression.int4(rounding="stochastic", error_feedback=True, min_elements=0),
    "int4_lloyd": Compression.int4(rotation="hadamard", levels="lloyd", min_elements=0),
    "topk": Compression.topk(min_elements=0),
    "powersgd": Compression.powersgd(min_elements=0),
}


class Layers(torch.nn.Module):
    """Equal layers, one for each compression; each learns the same function independently."""

    def __init__(self) -> None:
        super().__init__()
        for name in COMPRESSIONS:
            torch.manual_seed(1)
            self.register_parameter(name, torch.nn.Parameter(torch.randn(SHAPE) * 0.1))

    def losses(self, inputs: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        found = [torch.tanh(inputs @ layer) - wanted for layer in self.parameters()]
        return torch.stack([difference.square().mean() for difference in found])

    def digests(self) -> dict[str, str]:
        return {
            name: hashlib.sha256(layer.detach().numpy().tobytes()).hexdigest()
            for name, layer in self.named_parameters()
        }


def main(folder: Path, steps: int) -> None:
    torch.set_num_threads(1)
    hvd.init()
    layers = Layers()
    torch.manual_seed(2)
    teacher = torch.randn(SHAPE)
    torch.manual_seed(3 + hvd.rank())  # other data on each rank
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.5, momentum=0.5)
    optimizer = hvd.DistributedOptimizer(optimizer, layers.named_parameters(), compression=COMPRESSIONS)
    digests, losses = {}, []
    for step in range(1, steps + 1):
        inputs = torch.randn(4, SHAPE[0])
        optimizer.zero_grad()
        each = layers.losses(inputs, torch.tanh(inputs @ teacher))
        each.sum().backward()
        optimizer.step()
        losses.append(each.tolist())
        if step in LOOKED_AT:
            digests[step] = layers.digests()
    found = {"digests": digests, "losses": losses}
    (folder / f"rank-{hvd.rank()}.json").write_text(json.dumps(found))
    hvd.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
