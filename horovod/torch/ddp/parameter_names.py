"""Names of a model's parameters between ranks, in rules and in checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from horovod.torch.ddp import errors

__all__ = ["ParameterNames"]


class ParameterNames:
    """The names that ``model.named_parameters()`` gives, without DDP's "module.".

    Without a model parameters are numbered as they come: in the order of the first step's buckets, which is
    the same on all ranks, and in every run.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.is_numbering = inner is None
        named = [] if inner is None else inner.named_parameters()
        self._names: dict[Any, str] = {parameter: name for name, parameter in named}

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """All that have a name by now."""
        return [(name, parameter) for parameter, name in self._names.items()]

    def of(self, parameter: torch.Tensor) -> str:
        """The name of a parameter. ValueError when it belongs to another model than the names do."""
        name = self._names.get(parameter)
        if name is None:
            if not self.is_numbering:
                raise errors.unknown_parameter(shape=list(parameter.shape))
            name = self._names[parameter] = f"parameter.{len(self._names)}"
        return name
