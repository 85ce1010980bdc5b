"""A small model under DistributedDataParallel for the tests of ddp_ranks/. Data differ by rank."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from horovod.torch import ddp
from horovod.torch_autoload import compress_every_ddp

__all__ = [
    "BUCKET_MB",
    "Training",
    "all_equal",
    "every_ddp_is_compressed",
    "flat",
    "gathered",
    "layers",
    "mean_over_ranks",
]

BUCKET_MB = 0.004  # several buckets after DDP has rebuilt them
UNREGISTERED = object()


def layers() -> nn.Module:
    """A model with weights of 1200, 1200 and 90 elements, and biases."""
    return nn.Sequential(nn.Linear(30, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))


class Training:
    """A wrapped model, compressed unless ``compression`` is left out, with SGD and momentum."""

    def __init__(
        self,
        compression: Any = UNREGISTERED,
        *,
        make: Callable[[], nn.Module] = layers,
        seed: int = 0,
        keeps_gradients: bool = False,
        how: dict[str, Any] | None = None,
        **ddp_options: Any,
    ) -> None:
        torch.manual_seed(seed)
        self.keeps_gradients = keeps_gradients
        self.model = DistributedDataParallel(make(), bucket_cap_mb=BUCKET_MB, **ddp_options)
        self.state: ddp.CompressionState | None = None
        if compression is not UNREGISTERED:
            self.state = ddp.compress(self.model, compression, **(how or {}))
        trainable = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        self.optimizer = torch.optim.SGD(trainable, lr=0.1, momentum=0.9)

    def loss(self, step: int) -> torch.Tensor:
        """Return the loss of this rank's batch of a step."""
        generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
        x, y = torch.randn(8, 30, generator=generator), torch.randn(8, 3, generator=generator)
        return nn.functional.mse_loss(self.model(x).float(), y)

    def run(self, steps: range) -> Training:
        for step in steps:
            self.optimizer.zero_grad(set_to_none=not self.keeps_gradients)
            self.loss(step).backward()
            self.optimizer.step()
        return self

    def flat(self) -> torch.Tensor:
        return flat(self.model)

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return gradients by parameter, without the wrapper's prefix."""
        named = self.model.module.named_parameters()
        return {name: p.grad.clone() for name, p in named if p.grad is not None}

    def saved(self) -> bytes:
        """Return this rank's checkpoint file."""
        assert self.state is not None
        file = io.BytesIO()
        parts = {"model": self.model, "optimizer": self.optimizer, "compression": self.state}
        torch.save({name: part.state_dict() for name, part in parts.items()}, file)
        return file.getvalue()

    def load(self, file: bytes) -> None:
        assert self.state is not None
        checkpoint = torch.load(io.BytesIO(file), weights_only=True)
        self.model.load_state_dict(checkpoint["model"])
        self.optimizer.load_state_dict(checkpoint["optimizer"])
        self.state.load_state_dict(checkpoint["compression"])


@contextlib.contextmanager
def every_ddp_is_compressed() -> Iterator[None]:
    """In the block, every DDP is compressed as the environment specifies; then the class is torch's again."""
    with pytest.MonkeyPatch.context() as restored:
        for name in ("__init__", "register_comm_hook", "_register_builtin_comm_hook"):
            restored.setattr(DistributedDataParallel, name, getattr(DistributedDataParallel, name))
        compress_every_ddp()
        yield


def flat(model: nn.Module) -> torch.Tensor:
    """Return all parameters in one tensor, one after the other."""
    return torch.cat([parameter.detach().reshape(-1) for parameter in model.parameters()])


def gathered(own: Any, group: dist.ProcessGroup | None = None) -> list[Any]:
    everybodys: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(everybodys, own, group)
    return everybodys


def all_equal(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> bool:
    """Return whether it has the same bits on every rank."""
    return all(torch.equal(tensor, other) for other in gathered(tensor, group))


def mean_over_ranks(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([other.double() for other in gathered(tensor)]).mean(0)
