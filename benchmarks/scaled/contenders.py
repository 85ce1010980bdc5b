"""The contenders: one process alone, torch's ways with several, and our compressions under DDP and hvd."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch
from on_hosts import training
from torch import nn

SERIAL = "serial"  # one process trains, the others sleep
ALONE = training.ALONE  # all train at the same moment, each alone
DATA_PARALLEL = "DataParallel"
HOOK, HOROVOD = "ddp.compress", "Horovod"
MAY_TURN_OFF = ", may turn off"
WATCHED = ", watched"  # the script registers its own hooks on parameters, so DDP copies all gradients
COMPRESSIONS = ("bit16", "bit8", "int8", "int4", "topk", "powersgd")


def everyone(compressions: list[str]) -> list[str]:
    """Return all contenders, in the order of the tables."""
    ours = [f"{HOOK} {text}" for text in compressions]
    ours += [f"{HOOK} {text}{MAY_TURN_OFF}" for text in compressions if text == "bit8"]
    return [SERIAL, DATA_PARALLEL, ALONE, *training.RIVALS, *ours, *(f"{HOROVOD} {t}" for t in compressions)]


def in_place(names: list[str], kind: str, count: int) -> list[str]:
    """Return the `names` that run on `count` "processes" of one host, or "hosts" of one process each.

    One process has no peer to send to; DataParallel uses the devices of one host, and these hosts have one.
    """
    if count == 1:
        return [name for name in names if name in (SERIAL, DATA_PARALLEL)]
    return [name for name in names if kind == "processes" or name != DATA_PARALLEL]


def compression_of(name: str) -> str:
    """Return a contender's compression as text; "" for a contender of torch."""
    way, _, text = name.partition(" ")
    return text.removesuffix(MAY_TURN_OFF).removesuffix(WATCHED) if way in (HOOK, HOROVOD) else ""


def why_not(name: str) -> str:
    """Return the error in a contender's name; "" if it is right."""
    text = compression_of(name)
    if not text:
        known = everyone([])
        return "" if name in known else f"{name!r} is none of {', '.join(known)}, ddp.compress X, Horovod X"
    if name.startswith(HOROVOD) and name.endswith((MAY_TURN_OFF, WATCHED)):
        return f"{name!r}: only ddp.compress may turn off, or is watched"
    import horovod.torch as hvd

    try:
        hvd.Compression.from_text(text)
    except ValueError as error:
        return str(error)
    return ""


def trains_in_all(name: str) -> bool:
    """Return whether all processes train, so that a step has batch times processes samples."""
    return name not in (SERIAL, DATA_PARALLEL)


def must_agree(name: str) -> bool:
    """Return whether all ranks must end with the same parameters."""
    return trains_in_all(name) and name != ALONE


def copies_kept(name: str) -> int:
    """Return the memory that a contender keeps between its steps, in multiples of the gradients.

    It consists of DDP's buckets, and of the residuals of contenders with feedback.
    """
    remembers = name == "DDP PowerSGD" or compression_of(name).startswith(("topk", "powersgd"))
    return int(name.startswith(("DDP", HOOK))) + int(remembers)


@dataclass
class Trained:
    """A module to call and an optimizer to step. `state` is ddp.compress's, which has the choice it made."""

    module: nn.Module
    optimizer: torch.optim.Optimizer
    state: Any = None


def opened(name: str, model: nn.Module, ddp_options: dict[str, Any]) -> Trained:
    """Return the module and optimizer as this contender's users make them, in the memory of `model`.

    `ddp_options` are DistributedDataParallel's, for all contenders that use it.
    """
    own = sharing_memory(model)
    way, _, text = name.partition(" ")
    if way == HOROVOD:
        return Trained(*training.step_of(text, own, prefix=f"{name}."))
    if way == HOOK:
        from horovod.torch import ddp

        parallel = nn.parallel.DistributedDataParallel(own, init_sync=False, **ddp_options)
        may_turn_off = name.endswith(MAY_TURN_OFF)
        state = ddp.compress(parallel, compression_of(name), may_turn_off=may_turn_off)
        for parameter in own.parameters() if name.endswith(WATCHED) else ():
            parameter.register_post_accumulate_grad_hook(lambda parameter: None)
        return Trained(parallel, sgd(own), state)
    if name == DATA_PARALLEL:
        return Trained(nn.DataParallel(own), sgd(own))
    return Trained(*training.step_of(ALONE if name == SERIAL else name, own, **ddp_options))


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=training.LEARNING_RATE)


def sharing_memory(model: nn.Module) -> nn.Module:
    """Return a model with its own hooks and gradients, whose values lie in the memory of `model`.

    Twenty contenders then need the memory of twenty gradients, but of one model.
    """
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    shared |= {id(tensor): nn.Parameter(tensor.detach()) for tensor in model.parameters()}
    return copy.deepcopy(model, shared)
