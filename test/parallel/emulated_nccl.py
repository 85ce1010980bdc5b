"""A machine with emulated GPUs for PyTorch programs that call init_process_group("nccl").

torch is a CPU build here, without CUDA and NCCL. Therefore

- torch.cuda reports GPUs, and a tensor that is sent to one stays in host memory, which holds the memory of
  emulated GPUs; EmulatedGpu makes it count as that GPU's in horovod.torch.
- torch makes the process group by its own code for "nccl"; its ProcessGroupNCCL here sends by gloo.

The traffic of torch's process groups is counted: NCCL would carry these tensors on real GPUs.

    python emulated_nccl.py SCRIPT [WORDS...]     with EMULATED_REPORT a folder, for what was counted
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import datetime
import functools
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from emulated_torch import EmulatedGpu, asked_for
from torch.nn.parallel import DistributedDataParallel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from horovod import torch_autoload
from horovod.common import jobs
from horovod.common.process_sets import global_process_set

__all__ = ["CarriedByTorch", "install"]

GPUS = 4


class StandIn(dist.ProcessGroupGloo):
    """Replaces torch's ProcessGroupNCCL."""

    class Options:
        """Attributes that torch writes, and horovod.torch.ddp reads."""

        _timeout = datetime.timedelta(minutes=10)
        is_high_priority_stream = False
        global_ranks_in_group: Sequence[int] = ()
        group_name = ""

    def __init__(self, store: Any, rank: int, size: int, options: StandIn.Options) -> None:
        super().__init__(store, rank, size, timeout=options._timeout)


class _Stream:
    """A stream of torch, on which the host does everything at once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.wait_stream = self.synchronize = lambda *_: None


class InHostMemory(TorchFunctionMode):
    """Keeps in host memory the tensors that a program sends to a GPU, or creates there."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0]
        if func is torch.device:  # the type that the program uses
            return torch.device("cuda", args[0]) if type(args[0]) is int else func(*args, **(kwargs or {}))
        given = {name: _on_host(value) for name, value in (kwargs or {}).items()}
        return func(*map(_on_host, args), **given)


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu") if value.type == "cuda" else value
    return "cpu" if isinstance(value, str) and value.partition(":")[0] == "cuda" else value


class CarriedByTorch(TorchDispatchMode):
    """Counts the bytes of tensors in collectives of process groups, by operation.

    ``backends`` are those that the default group had in the meantime.
    """

    def __init__(self) -> None:
        super().__init__()
        self.bytes: collections.Counter[str] = collections.Counter()
        self.backends: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func.namespace == "c10d":
            operation = func.name().removeprefix("c10d::").rstrip("_")
            self.backends.add(dist.get_backend())
            self.bytes[operation] += sum(tensor.nbytes for tensor in _tensors(args[0]))
        return func(*args, **(kwargs or {}))


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for each in value for tensor in _tensors(each)] if isinstance(value, list | tuple) else []


def install(gpu: EmulatedGpu) -> CarriedByTorch:
    """Make this process one on a machine with emulated GPUs; return the counters, which start now."""
    gpu.install()
    _have_nccl()
    _average_integers()
    _have_cuda(gpu.index)
    InHostMemory().__enter__()
    carried = CarriedByTorch()
    carried.__enter__()
    return carried


def _have_nccl() -> None:
    torch_c10d: Any = c10d
    torch_c10d._NCCL_AVAILABLE = True
    torch_c10d.ProcessGroupNCCL = StandIn
    torch_c10d.default_pg_nccl_timeout = StandIn.Options._timeout
    c10d.Backend.backend_capability["nccl"] = ["cpu", "cuda"]  # the tensors of GPUs are in host memory
    begin = torch_c10d.init_process_group

    @functools.wraps(begin)
    def begin_on_any_device(*args: Any, device_id: Any = None, **kwargs: Any) -> None:
        """Drop ``device_id``, which is refused without such an accelerator."""
        begin(*args, **kwargs)

    torch_c10d.init_process_group = begin_on_any_device
    dist.init_process_group = begin_on_any_device


def _average_integers() -> None:
    """Average integers as NCCL does; gloo refuses them."""
    reduce: Any = c10d.all_reduce

    @functools.wraps(reduce)
    def all_reduce(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM, *args: Any, **kwargs: Any) -> Any:
        if op != dist.ReduceOp.AVG or tensor.is_floating_point():
            return reduce(tensor, op, *args, **kwargs)
        reduce(tensor, dist.ReduceOp.SUM, kwargs.get("group"))
        tensor.div_(dist.get_world_size(kwargs.get("group")), rounding_mode="trunc")
        return None

    c10d.all_reduce = dist.all_reduce = all_reduce  # type: ignore[assignment]


def _have_cuda(index: int) -> None:
    current = [index]
    cuda: Any = torch.cuda
    cuda.is_available = lambda: True
    cuda.device_count = lambda: GPUS
    cuda.current_device = lambda: current[0]
    cuda.set_device = lambda device: current.__setitem__(0, torch.device(device).index)
    cuda.Stream, cuda.stream, cuda.current_stream = _Stream, contextlib.nullcontext, _Stream
    cuda.nccl.version = lambda: (2, 27, 7)
    cuda.get_device_capability = lambda device=None: (7, 0)
    cuda.get_device_name = lambda device=None: "emulated"
    for name in ("synchronize", "empty_cache", "manual_seed", "manual_seed_all"):
        setattr(cuda, name, lambda *args, **kwargs: None)
    make: Callable[..., None] = DistributedDataParallel.__init__

    @functools.wraps(make)
    def make_of_host_memory(
        model: Any, module: Any, device_ids: Any = None, *args: Any, **named: Any
    ) -> None:
        """Drop ``device_ids``, which are refused for a module in host memory."""
        named.pop("output_device", None)
        make(model, module, None, *args, **named)

    DistributedDataParallel.__init__ = make_of_host_memory  # type: ignore[method-assign, assignment]


def _report(carried: CarriedByTorch, folder: str) -> None:
    """At the end of the program, write the bytes that torch and this package's jobs carried to a file."""
    from horovod.torch.ddp import group_job

    counters: dict[jobs.Job, dict[str, int]] = {}
    leave = group_job.leave

    def count(job: jobs.Job) -> None:
        if job.member is not None:
            counters[job] = job.run(job.member.metrics, global_process_set)

    @functools.wraps(leave)
    def count_and_leave(job: jobs.Job) -> None:
        count(job)
        leave(job)

    def write() -> None:
        for job in group_job.begun():
            count(job)
        groups = carried.backends
        said = {"torch": carried.bytes, "backends": sorted(groups), "jobs": list(counters.values())}
        Path(folder, os.environ["RANK"]).write_text(json.dumps(said))

    group_job.leave = count_and_leave
    atexit.register(write)


if __name__ == "__main__":
    if (emulated := asked_for(int(os.environ["LOCAL_RANK"]))) is None:
        counting = CarriedByTorch()
        counting.__enter__()
    else:
        counting = install(emulated)
    _report(counting, os.environ["EMULATED_REPORT"])
    torch_autoload.load()  # as torch does with an installed package
    del sys.argv[0]
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
