"""Hooks that run before a backward pass accumulates a parameter's gradient."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

import torch

from horovod.common import jobs
from horovod.torch.compiling import breaks_graphs

__all__ = ["register"]


class _Listener(Protocol):
    def before_accumulation(self, parameter: torch.Tensor) -> None: ...


def register(listener: _Listener, parameter: torch.Tensor) -> Any:
    """Call ``listener.before_accumulation(parameter)`` in this job, before each accumulation.

    Returns the hook's handle. The hook keeps neither object alive.
    """
    of_listener, of_parameter, job = weakref.ref(listener), weakref.ref(parameter), jobs.current()

    @breaks_graphs
    def hook(_gradient: torch.Tensor) -> None:
        found, its_parameter = of_listener(), of_parameter()
        if found is not None and its_parameter is not None:
            job.run(found.before_accumulation, its_parameter)

    return parameter.register_hook(hook)  # type: ignore[no-untyped-call]
