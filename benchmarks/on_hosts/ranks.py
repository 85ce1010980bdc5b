"""The ranks of a job, for each launcher: how they meet, and how they sum tensors.

A contender's sums are two calls, in place and out of place; None if it has no such call.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from on_hosts.jobs import DEVICE

Call = Callable[[], Any]


def bytes_sent(device: str = DEVICE) -> int:
    """Return the bytes that this host sent by its cable, or another network device, headers included."""
    return int(Path(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())


class HorovodRanks:
    """Ranks of horovodrun. Contenders are compressions by name."""

    def __init__(self) -> None:
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()

    def barrier(self) -> None:
        self._hvd.barrier()

    def sums(self, contender: str, work: torch.Tensor, source: torch.Tensor) -> tuple[Call, Call]:
        """Return the calls that replace float32 `work` by its sum over ranks, and that return `source`'s."""
        hvd = self._hvd
        compression = getattr(hvd.Compression, contender)
        options = {"name": f"{contender}.{work.numel()}", "op": hvd.Sum, "compression": compression}
        return lambda: hvd.allreduce_(work, **options), lambda: hvd.allreduce(source, **options)

    def close(self) -> None:
        self._hvd.shutdown()


class MpiRanks:
    """Ranks of mpirun: MPI_Allreduce with MPI_IN_PLACE."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size

    def barrier(self) -> None:
        self._world.Barrier()

    def sums(self, contender: str, work: torch.Tensor, source: torch.Tensor) -> tuple[Call, None]:
        place, buffer = self._mpi.IN_PLACE, [work.numpy(), self._mpi.FLOAT]
        return lambda: self._world.Allreduce(place, buffer, self._mpi.SUM), None

    def close(self) -> None:
        """Do nothing: mpi4py ends MPI at exit."""


class GlooRanks:
    """Ranks of torch.distributed over gloo: all_reduce of float32, or of a copy in half precision."""

    def __init__(self) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method="env://")
        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def barrier(self) -> None:
        self._dist.barrier()

    def sums(self, contender: str, work: torch.Tensor, source: torch.Tensor) -> tuple[Call, None]:
        if contender == "gloo":
            return lambda: self._dist.all_reduce(work), None
        half = torch.empty(work.numel(), dtype=torch.float16)

        def through_half() -> None:
            half.copy_(work)
            self._dist.all_reduce(half)
            work.copy_(half)

        return through_half, None

    def close(self) -> None:
        self._dist.destroy_process_group()


Ranks = HorovodRanks | MpiRanks | GlooRanks


def meet(launcher: str) -> Ranks:
    if launcher == "horovodrun":
        return HorovodRanks()
    return GlooRanks() if launcher == "torch" else MpiRanks()


def pin(core: int) -> None:
    """Run all threads that this process will start on one core. Call it before any thread starts."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core % len(allowed)]})
