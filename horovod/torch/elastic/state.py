"""The state of a PyTorch training: handlers of objects with a state_dict, and attributes that are copied."""

from __future__ import annotations

import itertools
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch

from horovod.common import exits, restarting
from horovod.common.agent_messages import VARIABLE as AGENT
from horovod.common.basics import basics
from horovod.common.elastic import ObjectState, copied
from horovod.torch import errors
from horovod.torch.elastic.host_commits import HostCommits, first_unreadable, forget_when_all_are_done
from horovod.torch.elastic.sampler import ElasticSampler
from horovod.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
    can_travel,
    parameters_of,
)
from horovod.torch.gradient_listener import GradientListener

__all__ = [
    "ModelStateHandler", "OptimizerStateHandler", "SamplerStateHandler", "ScalerStateHandler",
    "StateDictHandler", "StateHandler", "TorchState", "get_handler_registry", "set_handler_registry",
]  # fmt: skip

_log = logging.getLogger("horovod")
_started = itertools.count()  # numbers this process' states, for commits that outlive processes


class StateHandler:
    """Saves, restores and synchronizes one attribute of a TorchState, ``value``.

    A subclass keeps the copies of ``save`` in its own attributes, as new objects each time: a state keeps
    references to those of the last two commits.

    ``root_rank``: the rank whose value ``sync`` sends to all. It is 0, unless rank 0 has lost its state.
    """

    root_rank = 0

    def __init__(self, value: Any) -> None:
        self.value = value
        self.save()

    def save(self) -> None:
        """Copy the value."""
        raise errors.not_written(owner=type(self).__name__, what="it is saved")

    def restore(self) -> None:
        """Restore the last copy of the value."""
        raise errors.not_written(owner=type(self).__name__, what="it is restored")

    def sync(self) -> None:
        """Give all ranks the value of ``root_rank``. Collective."""
        raise errors.not_written(owner=type(self).__name__, what="ranks agree on it")

    def set_value(self, value: Any) -> None:
        """Use another object from now on, and copy it."""
        self.value = value
        self.save()


class StateDictHandler(StateHandler):
    """For objects with ``state_dict()`` and ``load_state_dict()``: a scheduler, a GradScaler."""

    def save(self) -> None:
        self._saved = in_host_memory(self.value.state_dict())

    def restore(self) -> None:
        # a copy, as the value may change what it loads
        self.value.load_state_dict(in_host_memory(self._saved))

    def sync(self) -> None:
        is_root = basics.rank() == self.root_rank
        own = in_host_memory(self.value.state_dict()) if is_root else None
        theirs = broadcast_object(own, self.root_rank)
        if not is_root:
            self.value.load_state_dict(theirs)


class ModelStateHandler(StateDictHandler):
    """For a module: parameters and buffers."""

    def __init__(self, value: torch.nn.Module) -> None:
        _refuse_ddp(value)
        super().__init__(value)

    def set_value(self, value: torch.nn.Module) -> None:
        _refuse_ddp(value)
        super().set_value(value)

    def sync(self) -> None:
        own = self.value.state_dict()
        tensors = {name: each for name, each in own.items() if isinstance(each, torch.Tensor)}
        broadcast_parameters(tensors, self.root_rank)
        if len(tensors) < len(own):  # extra state from get_extra_state()
            others = {name: each for name, each in own.items() if name not in tensors}
            self.value.load_state_dict({**tensors, **broadcast_object(others, self.root_rank)})


class OptimizerStateHandler(StateDictHandler):
    """For an optimizer. Error feedback is not kept: it starts again in every world."""

    def save(self) -> None:
        self._saved = in_host_memory(_without_residuals(self.value))

    def restore(self) -> None:
        super().restore()
        # load_state_dict() has cast state to its parameters' dtype, which may be narrower.
        parameters = parameters_of(self.value)
        for number, state in self._saved["state"].items():
            for key, saved in state.items() if isinstance(number, int) and isinstance(state, dict) else ():
                now = self.value.state[parameters[number]].get(key)
                are_tensors = isinstance(now, torch.Tensor) and isinstance(saved, torch.Tensor)
                if are_tensors and now.dtype != saved.dtype:
                    self.value.state[parameters[number]][key] = saved.to(now.device, copy=True)

    def sync(self) -> None:
        if isinstance(self.value, torch.optim.LBFGS):
            super().sync()
            return
        _check_parameters(self.value, self.root_rank)
        broadcast_optimizer_state(self.value, self.root_rank)


class SamplerStateHandler(StateDictHandler):
    """For an ElasticSampler: how much of the epoch is done."""

    def restore(self) -> None:
        """Restore; between two worlds, when the ranks are unknown, only note what is done."""
        if basics.is_initialized():
            super().restore()
        else:
            self.value.epoch, self.value.processed_num = self._saved["epoch"], self._saved["processed_num"]

    def sync(self) -> None:
        """Continue on all ranks after the samples that are done on root.

        If ranks have recorded different numbers, the smallest counts: some samples are given out again, and
        none is lost.
        """
        states = allgather_object(self.value.state_dict())
        own = states[self.root_rank]
        done = [each["processed_num"] for each in states if each["epoch"] == own["epoch"]]
        agreed = min((count for count in done if count > 0), default=0)  # new workers have done none
        if 0 < agreed < own["processed_num"] and basics.rank() == self.root_rank:
            _log.warning(
                "horovod: ranks have recorded different numbers of samples in epoch %d, %s: those after %d "
                "are given out again. Have every rank record batches of the same size.",
                *(own["epoch"], sorted(set(done)), agreed),
            )
        self.value.load_state_dict({**own, "processed_num": min(agreed, own["processed_num"])})


class ScalerStateHandler(StateDictHandler):
    """For a GradScaler."""

    def restore(self) -> None:
        super().restore()
        self.value._per_optimizer_states.clear()  # of a step that failed between unscale_() and update()


_Registry = list[tuple[type, type[StateHandler]]]
_registry: _Registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (torch.amp.GradScaler, ScalerStateHandler),
]


def get_handler_registry() -> _Registry:
    """Return (class, handler of its instances) pairs. The first that fits counts."""
    return _registry


def set_handler_registry(registry: _Registry) -> None:
    """Use these handlers for states that are made from now on."""
    global _registry
    _registry = registry


def handler_of(value: Any) -> StateHandler | None:
    """Return a handler of the value, or None if it is copied as a whole."""
    for kind, handler in _registry:
        if isinstance(value, kind):
            return handler(value)
    methods = (getattr(value, name, None) for name in ("state_dict", "load_state_dict"))
    is_class = isinstance(value, type)
    return StateDictHandler(value) if not is_class and all(map(callable, methods)) else None


class TorchState(ObjectState):
    """The state of a training with PyTorch: ``TorchState(model=..., optimizer=..., epoch=0, batch=0)``.

    Models, optimizers, samplers and other objects with ``state_dict()`` and ``load_state_dict()`` have
    handlers. Other values are copied, and travel by cloudpickle. Assigning a new model (optimizer, ...) to
    its attribute saves it.

    Saved copies are in host memory, two of model and optimizer.
    """

    _handlers: dict[str, StateHandler]

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        **kwargs: Any,
    ) -> None:
        handlers: dict[str, StateHandler] = {}
        objects: dict[str, Any] = {}
        for name, value in {"model": model, "optimizer": optimizer, **kwargs}.items():
            handler = handler_of(value)
            if handler is None:
                objects[name] = value
            else:
                handlers[name] = handler
                self.__dict__[name] = value
        self.__dict__["_handlers"] = handlers
        super().__init__(bcast_object=broadcast_object, get_rank=basics.rank, **objects)

    def __setattr__(self, name: str, value: Any) -> None:
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
            if self._commits.numbers:
                self._commits.get(self._commits.newest)["handlers"][name] = _memento(handler)
        super().__setattr__(name, value)

    def _content(self) -> dict[str, Any]:
        for handler in self._handlers.values():
            handler.save()
        mementos = {name: _memento(handler) for name, handler in self._handlers.items()}
        return {**super()._content(), "handlers": mementos}

    def _take(self, content: Mapping[str, Any]) -> None:
        for name, memento in content["handlers"].items():
            handler = self._handlers[name]
            vars(handler).update(memento)
            handler.restore()
        super()._take(content)

    def _receive(self, root: int) -> None:
        for handler in self._handlers.values():
            handler.root_rank = root
            handler.sync()
        super()._receive(root)

    def _unpicklable(self, values: Mapping[str, Any]) -> str | None:
        return next((name for name, value in values.items() if not can_travel(value)), None)

    def _find_commits(self) -> None:
        """Use the commits in this host's memory, which the first rank of each host reads and writes.

        If the user has not requested them, obstacles are reported, and training continues without.
        """
        gives_up = None if restarting.is_asked_for() else restarting.tell_of_none
        number = next(_started)
        wrong = first_unreadable(self._commits.get(self._commits.newest))
        if wrong is not None and gives_up is not None:
            gives_up(f"{wrong} is no plain value")
            return
        local_rank, local_size = restarting.place_on_host()
        is_writer = local_rank == 0
        names = sorted([*self._handlers, *self._names])
        try:
            folder = restarting.folder()
            commits = HostCommits(folder, number, names, lambda: self._has_synced and is_writer, gives_up)
            has_found = is_writer and commits.find()
        except (OSError, ValueError) as error:
            if gives_up is None:
                raise
            gives_up(str(error))
            return
        if has_found:
            self._commits, self._has_found = commits, True
            self.restore()
        else:
            commits.put(self._commits.newest, self._commits.get(self._commits.newest))
            self._commits = commits
        self._saves_before = self._saves
        if AGENT not in os.environ:  # without an agent, this process must remove it
            _forget_at_exit(folder, local_rank, local_size)

    def reset(self) -> None:
        """Divide the samplers' remaining samples among the ranks of the new world."""
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()


def _forget_at_exit(folder: str, local_rank: int, local_size: int) -> None:
    owner = os.getpid()

    def forget() -> None:
        if os.getpid() == owner and exits.uncaught_exception() is None:
            forget_when_all_are_done(folder, local_rank, local_size)

    exits.at_exit(forget)


def _memento(handler: StateHandler) -> dict[str, Any]:
    """Return a handler's saved state: all attributes except the value."""
    return {name: saved for name, saved in vars(handler).items() if name not in ("value", "root_rank")}


def _refuse_ddp(model: Any) -> None:
    """Raise ValueError for a model that belongs to a process group, which does not survive a reset."""
    if isinstance(model, torch.nn.parallel.DistributedDataParallel):
        raise errors.ddp_in_state()


def _without_residuals(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return an optimizer's state, for a DistributedOptimizer with the compressors' memory."""
    if not isinstance(optimizer, GradientListener):
        return optimizer.state_dict()
    inner: Any = next(cls for cls in type(optimizer).__mro__ if not issubclass(cls, GradientListener))
    saved: dict[str, Any] = inner.state_dict(optimizer)
    compressors = optimizer._reducer.memory.state_dict()
    if not compressors:
        return saved
    return {**saved, "horovod": {"rank": 0, "size": 1, "residuals": {}, "compressors": compressors}}


def _check_parameters(optimizer: torch.optim.Optimizer, root: int) -> None:
    """Raise ValueError unless a DistributedOptimizer's parameters equal root's, in the same order."""
    if not isinstance(optimizer, GradientListener):
        return
    own = [optimizer._parameter_names.get(each, "") for each in parameters_of(optimizer)]
    theirs = broadcast_object(own, root)
    if own != theirs:
        different = sorted(set(own) ^ set(theirs)) or "none, but their order"
        raise errors.other_parameters(ranks=[basics.rank()], root=root, names=different)


def in_host_memory(value: Any) -> Any:
    """Return a copy of state_dict()'s result that shares no memory with it."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        copy: Any = {key: in_host_memory(each) for key, each in value.items()}
        if hasattr(value, "_metadata"):  # a module's: the versions of its layout
            copy = OrderedDict(copy)
            copy._metadata = copied("state_dict()", value._metadata)
        return copy
    if type(value) in (list, tuple):
        return type(value)(map(in_host_memory, value))
    return copied("state_dict()", value)
