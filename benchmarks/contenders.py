"""The contenders of all benchmarks: MPI, torch.distributed and DDP, and Horovod under each compression.

Those that sum belong to a world, which binds them to tensors before timing, so a timed call is only the
allreduce. Those that train are a module to call and an optimizer to step, as their users make them.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

# Contenders that sum

RIVALS = ("MPI", "gloo", "NCCL")  # NCCL: torch.distributed's, on GPUs
YARDSTICK = "memcpy"  # copied by all ranks at the same moment: the limit of the memory bandwidth
COMPRESSIONS = ("none", "fp16", "bf16", "bit16", "bit8", "int8")


@dataclass
class Tensors:
    """The tensors of one size: `source` is read, `work` reduced in place, `target` is a warm output."""

    source: torch.Tensor
    work: torch.Tensor
    target: torch.Tensor


def normal(rank: int, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return N(0,1) data that differs on every rank; a shorter one is the beginning of a longer one."""
    return np.random.default_rng([17, rank]).standard_normal(count, dtype=np.float32)


def exact_sum(ranks: int, count: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the sum of the ranks' `normal` data in float64."""
    return np.asarray(sum(normal(rank, count).astype(np.float64) for rank in range(ranks)))


def nmse(exact: np.ndarray[Any, Any], approximate: np.ndarray[Any, Any]) -> float:
    """Return |approximate - exact|^2 / |exact|^2 in float64, by pieces, to avoid a float64 copy of all."""
    piece = 1 << 20
    error = energy = 0.0
    for begin in range(0, exact.size, piece):
        wanted = exact[begin : begin + piece].astype(np.float64)
        error += float(np.square(approximate[begin : begin + piece] - wanted).sum())
        energy += float(np.square(wanted).sum())
    return error / energy if energy else 0.0


Call = Callable[[], torch.Tensor]
Calls = tuple[Call, Call]  # in place, out of place; each returns the tensor that holds the sum


class MpiWorld:
    """MPI_Allreduce on contiguous float32: with MPI_IN_PLACE, or out of place into memory that is warm.

    mpi4py begins MPI when it is imported, and ends it at exit.
    """

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._comm = MPI, MPI.COMM_WORLD.Dup()
        self.rank, self.size, self.barrier = self._comm.rank, self._comm.size, self._comm.Barrier

    def sums(self, contender: str, tensors: Tensors) -> Calls:
        sum_up, add, in_its_place = self._comm.Allreduce, self._mpi.SUM, self._mpi.IN_PLACE
        everything = (tensors.work, tensors.source, tensors.target)
        work, source, target = ([tensor.numpy(), self._mpi.FLOAT] for tensor in everything)

        def in_place() -> torch.Tensor:
            sum_up(in_its_place, work, add)
            return tensors.work

        def out_of_place() -> torch.Tensor:
            sum_up(source, target, add)
            return tensors.target

        return in_place, out_of_place

    def close(self) -> None:
        """Do nothing: mpi4py ends MPI at exit."""


class TorchWorld:
    """torch.distributed's gloo or NCCL. Both work in place; out of place copies first.

    Ranks meet as `meeting` tells init_process_group; the default is by variables.
    """

    def __init__(self, backend: str = "gloo", **meeting: Any) -> None:
        self._is_first, self._group = not dist.is_initialized(), None  # None: the group of all
        if self._is_first:
            dist.init_process_group(backend, **meeting)
        else:
            self._group = dist.new_group(backend=backend)
        self.rank, self.size, self.barrier = dist.get_rank(), dist.get_world_size(), dist.barrier

    def sums(self, contender: str, tensors: Tensors) -> Calls:
        group = self._group
        if contender == "gloo half":
            return self._by_half(tensors.work), self._by_half(tensors.target, tensors.source)

        def in_place() -> torch.Tensor:
            dist.all_reduce(tensors.work, group=group)
            return tensors.work

        def out_of_place() -> torch.Tensor:
            tensors.target.copy_(tensors.source)
            dist.all_reduce(tensors.target, group=group)
            return tensors.target

        return in_place, out_of_place

    def _by_half(self, tensor: torch.Tensor, source: torch.Tensor | None = None) -> Call:
        """Return a call that sums a copy in half precision."""
        half = torch.empty(tensor.numel(), dtype=torch.float16)

        def call() -> torch.Tensor:
            half.copy_(tensor if source is None else source)
            dist.all_reduce(half, group=self._group)
            return tensor.copy_(half)

        return call

    def close(self) -> None:
        """End torch.distributed and its groups, if this world began it."""
        if self._is_first:
            dist.destroy_process_group()


class HorovodWorld:
    """hvd.allreduce_ and hvd.allreduce under one compression, with the same name each time, as in training.

    Out of place returns a new tensor on every call, as the public function does.
    """

    def __init__(self) -> None:
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size, self.barrier, self.close = hvd.rank(), hvd.size(), hvd.barrier, hvd.shutdown

    def sums(self, contender: str, tensors: Tensors) -> Calls:
        hvd, name = self._hvd, f"benchmark.{contender}.{tensors.work.numel()}"
        options = {"name": name, "op": hvd.Sum, "compression": getattr(hvd.Compression, contender)}
        work, source = tensors.work, tensors.source
        return lambda: hvd.allreduce_(work, **options), lambda: hvd.allreduce(source, **options)


class CopyWorld:
    """Sums nothing: every rank copies its tensor into another one, which is warm.

    That is the speed of an allreduce through memory if everything between reading and writing stayed in the
    caches.
    """

    def sums(self, contender: str, tensors: Tensors) -> Calls:
        def copied() -> torch.Tensor:
            return tensors.target.copy_(tensors.source)

        return copied, copied

    def close(self) -> None:
        """Do nothing: there is nothing open."""


# Contenders that train

SERIAL = "serial"  # one process trains, the others sleep
ALONE = "alone"  # all train at the same moment, each alone: the other times minus this one are communication
DATA_PARALLEL = "DataParallel"
DDP_WAYS = ("DDP", "DDP fp16", "DDP PowerSGD")
HOOK, HOROVOD = "ddp.compress", "Horovod"  # followed by a compression
MAY_TURN_OFF = ", may turn off"
WATCHED = ", watched"  # the script registers its own hooks on parameters, so DDP copies all gradients
TRAINED = ("bit16", "bit8", "int8", "int4", "topk", "powersgd")  # compressions
LEARNING_RATE = 1e-4


def everyone(compressions: list[str]) -> list[str]:
    """Return all contenders, in the order of the tables."""
    ours = [f"{HOOK} {text}" for text in compressions]
    ours += [f"{HOOK} {text}{MAY_TURN_OFF}" for text in compressions if text == "bit8"]
    return [SERIAL, DATA_PARALLEL, ALONE, *DDP_WAYS, *ours, *(f"{HOROVOD} {text}" for text in compressions)]


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

    def step(self, inputs: torch.Tensor, loss_of: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self.optimizer.zero_grad()
        loss_of(self.module(inputs)).backward()
        self.optimizer.step()


def opened(name: str, model: nn.Module, prefix: str = "", momentum: float = 0.0, **options: Any) -> Trained:
    """Return a contender that trains `model`.

    `prefix` distinguishes the names by which Horovod reduces, if one process has several contenders.
    `options` are DistributedDataParallel's or DistributedOptimizer's.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=momentum)
    if name in (SERIAL, ALONE):
        return Trained(model, optimizer)
    if name == DATA_PARALLEL:
        return Trained(nn.DataParallel(model), optimizer)
    if name.startswith(HOROVOD):
        import horovod.torch as hvd

        options["compression"] = hvd.Compression.from_text(compression_of(name))
        # Distinct names, so that no contender removes another's from the response cache.
        named = [(prefix + own, parameter) for own, parameter in model.named_parameters()]
        return Trained(model, hvd.DistributedOptimizer(optimizer, named_parameters=named, **options))
    # PowerSGD's hook sums several times for each bucket. Over gloo, sums of two buckets meet in different
    # orders on different ranks, and the job fails ("collective mismatch"), so it gets one bucket.
    options |= {"bucket_cap_mb": 4096} if name == "DDP PowerSGD" else {}
    # All ranks have drawn the same parameters: nothing to send before the first step.
    parallel = nn.parallel.DistributedDataParallel(model, init_sync=False, **options)
    return Trained(parallel, optimizer, _hooked(name, parallel))


def _hooked(name: str, parallel: nn.parallel.DistributedDataParallel) -> Any:
    """Register the contender's hook; return ddp.compress's state, else None.

    torch's own hooks have their defaults; PowerSGD begins with step 2, not after 1000 steps.
    """
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    if name == "DDP fp16":
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    if name == "DDP PowerSGD":
        power = powerSGD_hook.PowerSGDState(process_group=None, start_powerSGD_iter=2)
        parallel.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
    if not name.startswith(HOOK):
        return None
    from horovod.torch import ddp

    state = ddp.compress(parallel, compression_of(name), may_turn_off=name.endswith(MAY_TURN_OFF))
    for parameter in parallel.parameters() if name.endswith(WATCHED) else ():
        parameter.register_post_accumulate_grad_hook(lambda parameter: None)
    return state


def sharing_memory(model: nn.Module) -> nn.Module:
    """Return a model with its own hooks and gradients, whose values lie in the memory of `model`.

    Twenty contenders then need the memory of twenty gradients, but of one model.
    """
    shared: dict[int, Any] = {id(buffer): buffer for buffer in model.buffers()}
    shared |= {id(tensor): nn.Parameter(tensor.detach()) for tensor in model.parameters()}
    return copy.deepcopy(model, shared)
