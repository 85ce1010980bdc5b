"""Names of a model's parameters for the wire, for rules and for checkpoints."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from horovod.torch.ddp import errors

__all__ = ["ParameterNames"]


class ParameterNames:
    """The names of ``model.named_parameters()``, without DDP's "module.".

    Without a model, parameters are numbered in the order of the first step's buckets, which is the same on
    all ranks and in every run.
    """

    def __init__(self, model: torch.nn.Module | None) -> None:
        inner = model.module if isinstance(model, DistributedDataParallel) else model
        self.is_numbering = inner is None
        named = [] if inner is None else inner.named_parameters()
        self._names: dict[Any, str] = {parameter: name for name, parameter in named}

    def parameters(self) -> list[tuple[str, torch.Tensor]]:
        """Return all parameters that have a name by now."""
        return [(name, parameter) for parameter, name in self._names.items()]

    def of(self, parameter: torch.Tensor) -> str:
        """Return the name of a parameter. ValueError if it belongs to another model than the names."""
        name = self._names.get(parameter)
        if name is None:
            if not self.is_numbering:
                raise errors.unknown_parameter(shape=list(parameter.shape))
            name = self._names[parameter] = f"parameter.{len(self._names)}"
        return name
