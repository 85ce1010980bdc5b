"""What every rank of a job can do, whoever started it: meet the others, and sum tensors with them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch

from on_hosts.jobs import DEVICE


def bytes_sent(device: str = DEVICE) -> int:
    """What this host has sent by its cable, or by another network device, headers included."""
    return int(Path(f"/sys/class/net/{device}/statistics/tx_bytes").read_text())


class HorovodRanks:
    """horovodrun's. Contenders are compressions by name."""

    def __init__(self) -> None:
        import horovod.torch as hvd

        hvd.init()
        self._hvd = hvd
        self.rank, self.size = hvd.rank(), hvd.size()

    def barrier(self) -> None:
        self._hvd.barrier()

    def sum_in_place(self, contender: str, tensor: torch.Tensor) -> Callable[[], object]:
        """The call that replaces `tensor`, float32, by its sum over ranks."""
        compression = getattr(self._hvd.Compression, contender)
        call, operation = self._hvd.allreduce_, self._hvd.Sum
        name = f"{contender}.{tensor.numel()}"
        return lambda: call(tensor, name=name, op=operation, compression=compression)

    def close(self) -> None:
        self._hvd.shutdown()


class MpiRanks:
    """mpirun's: MPI_Allreduce with MPI_IN_PLACE."""

    def __init__(self) -> None:
        from mpi4py import MPI

        self._mpi, self._world = MPI, MPI.COMM_WORLD
        self.rank, self.size = self._world.rank, self._world.size

    def barrier(self) -> None:
        self._world.Barrier()

    def sum_in_place(self, contender: str, tensor: torch.Tensor) -> Callable[[], object]:
        place, buffer = self._mpi.IN_PLACE, [tensor.numpy(), self._mpi.FLOAT]
        return lambda: self._world.Allreduce(place, buffer, self._mpi.SUM)

    def close(self) -> None:
        """mpi4py ends MPI at exit."""


class GlooRanks:
    """torch.distributed's, over gloo: all_reduce of float32, or of a copy in half precision and back."""

    def __init__(self) -> None:
        import torch.distributed as dist

        dist.init_process_group("gloo", init_method="env://")
        self._dist = dist
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def barrier(self) -> None:
        self._dist.barrier()

    def sum_in_place(self, contender: str, tensor: torch.Tensor) -> Callable[[], object]:
        if contender == "gloo":
            return lambda: self._dist.all_reduce(tensor)
        half = torch.empty(tensor.numel(), dtype=torch.float16)

        def through_half() -> None:
            half.copy_(tensor)
            self._dist.all_reduce(half)
            tensor.copy_(half)

        return through_half

    def close(self) -> None:
        self._dist.destroy_process_group()


Ranks = HorovodRanks | MpiRanks | GlooRanks


def meet(launcher: str) -> Ranks:
    if launcher == "horovodrun":
        return HorovodRanks()
    return GlooRanks() if launcher == "torch" else MpiRanks()


def pin(core: int) -> None:
    """All threads that this process will start run on one core: call it before any has been started."""
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {allowed[core % len(allowed)]})
