"""The parts of Lightning that `horovod.torch.lightning` needs, for tests without Lightning installed.

    with horovod_lightning() as module:
        module.HorovodStrategy(...)

The base classes implement only the calls that Lightning makes to a strategy. test/parallel/test_lightning.py
tests with real Lightning.
"""

from __future__ import annotations

import enum
import importlib
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch

__all__ = ["TrainerFn", "horovod_lightning", "trainer"]

OURS = "horovod.torch.lightning"


class TrainerFn(enum.Enum):
    FITTING = "fit"
    TESTING = "test"


class RankZeroOnly(threading.local):
    """Of each rank, as ranks are threads here."""

    rank: int | None = None


class ClusterEnvironment:
    pass


class Callback:
    pass


class ParallelStrategy:
    _layer_sync: Any = None

    def __init__(self, cluster_environment: Any = None) -> None:
        self.cluster_environment = cluster_environment
        self.parallel_devices: list[torch.device] | None = None
        self.model: Any = None
        self.optimizers: list[Any] = []
        self.has_environment = False
        self.after_closure: Callable[[], None] = lambda: None  # gradients are unscaled and clipped here

    @property
    def lightning_module(self) -> Any:
        return self.model

    def setup_environment(self) -> None:
        self.has_environment = True

    def setup(self, trainer: Any) -> None:
        self.model_to_device()  # type: ignore[attr-defined]
        if trainer.state.fn == TrainerFn.FITTING:
            self.setup_optimizers(trainer)

    def setup_optimizers(self, trainer: Any) -> None:
        self.optimizers = list(self.model.configure_optimizers())

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **more: Any
    ) -> Any:
        def closed() -> Any:
            loss = closure()
            self.after_closure()
            return loss

        return optimizer.step(closure=closed, **more)


MODULES: dict[str, dict[str, Any]] = {
    "lightning": {},
    "lightning.fabric": {},
    "lightning.fabric.plugins": {"ClusterEnvironment": ClusterEnvironment},
    "lightning.fabric.utilities": {},
    "lightning.fabric.utilities.rank_zero": {"rank_zero_only": RankZeroOnly()},
    "lightning.pytorch": {},
    "lightning.pytorch.callbacks": {"Callback": Callback},
    "lightning.pytorch.strategies": {"ParallelStrategy": ParallelStrategy},
    "lightning.pytorch.trainer": {},
    "lightning.pytorch.trainer.states": {"TrainerFn": TrainerFn},
}


@contextmanager
def horovod_lightning() -> Iterator[Any]:
    """`horovod.torch.lightning`, imported over the stand-ins; afterwards nothing of either is left."""
    kept = {name: sys.modules.pop(name, None) for name in (*MODULES, OURS)}
    for name, attributes in MODULES.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module
    try:
        yield importlib.import_module(OURS)
    finally:
        for name, module_before in kept.items():
            sys.modules.pop(name, None)
            if module_before is not None:
                sys.modules[name] = module_before


def trainer(accumulate: int = 1, fn: TrainerFn = TrainerFn.FITTING) -> Any:
    return SimpleNamespace(state=SimpleNamespace(fn=fn), accumulate_grad_batches=accumulate)
