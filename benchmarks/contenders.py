"""The contenders that sum a float32 tensor over ranks: MPI, gloo, NCCL, and Horovod under each compression.

In addition memcpy, which sums nothing: every rank copies its tensor at the same moment. That is the speed of
an allreduce through memory if everything between reading and writing stayed in the caches.

A contender is bound to its tensors before timing, so a timed call is only the allreduce. Importing this
module inside a rank starts MPI (through mpi4py), which all barriers of the benchmark use.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from mpi4py import MPI

RIVALS = ("MPI", "gloo", "NCCL")  # NCCL: torch.distributed's, on GPUs
YARDSTICK = "memcpy"
COMPRESSIONS = ("none", "fp16", "bf16", "bit16", "bit8", "int8")
EVERYONE = (*RIVALS, YARDSTICK, *COMPRESSIONS)


@dataclass
class Tensors:
    """The tensors of one size: `source` is read, `work` reduced in place, `target` is a warm output."""

    source: torch.Tensor
    work: torch.Tensor
    target: torch.Tensor


Call = Callable[[], torch.Tensor]


@dataclass
class Bound:
    """A contender's two calls on given tensors; each returns the tensor that holds the sum."""

    in_place: Call
    out_of_place: Call


class MpiContender:
    """MPI_Allreduce on contiguous float32: with MPI_IN_PLACE, or out of place into memory that is warm."""

    name = "MPI"

    def __init__(self, comm: MPI.Comm) -> None:
        self.comm = comm

    def bind(self, tensors: Tensors) -> Bound:
        comm = self.comm
        everything = (tensors.work, tensors.source, tensors.target)
        work, source, target = ([tensor.numpy(), MPI.FLOAT] for tensor in everything)

        def in_place() -> torch.Tensor:
            comm.Allreduce(MPI.IN_PLACE, work, MPI.SUM)
            return tensors.work

        def out_of_place() -> torch.Tensor:
            comm.Allreduce(source, target, MPI.SUM)
            return tensors.target

        return Bound(in_place, out_of_place)

    def close(self) -> None:
        """Do nothing: mpi4py ends MPI at exit."""


class TorchContender:
    """torch.distributed's gloo over loopback, or NCCL. Both work in place; out of place copies first."""

    def __init__(self, name: str, comm: MPI.Comm) -> None:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        self.name, self.comm = name, comm
        self.folder, self.group = "", None  # None: the group of all
        if dist.is_initialized():
            self.group = dist.new_group(backend=name.lower())
            return
        self.folder = comm.bcast(tempfile.mkdtemp(prefix="torch-") if comm.rank == 0 else None)
        meeting = f"file://{self.folder}/store"
        dist.init_process_group(name.lower(), init_method=meeting, rank=comm.rank, world_size=comm.size)

    def bind(self, tensors: Tensors) -> Bound:
        group = self.group

        def in_place() -> torch.Tensor:
            dist.all_reduce(tensors.work, group=group)
            return tensors.work

        def out_of_place() -> torch.Tensor:
            tensors.target.copy_(tensors.source)
            dist.all_reduce(tensors.target, group=group)
            return tensors.target

        return Bound(in_place, out_of_place)

    def close(self) -> None:
        """End torch.distributed and its groups, if this contender opened it."""
        if not self.folder:
            return
        dist.destroy_process_group()
        self.comm.Barrier()
        if self.comm.rank == 0:
            shutil.rmtree(self.folder)


class HorovodContender:
    """hvd.allreduce_ and hvd.allreduce under one compression, with the same name each time, as in training.

    Out of place returns a new tensor on every call, as the public function does.
    """

    def __init__(self, compression: str) -> None:
        import horovod.torch as hvd

        self.name = compression
        self.compression = getattr(hvd.Compression, compression)

    def bind(self, tensors: Tensors) -> Bound:
        import horovod.torch as hvd

        compression = self.compression
        name = f"benchmark.{self.name}.{tensors.work.numel()}"

        def in_place() -> torch.Tensor:
            return hvd.allreduce_(tensors.work, name=name, op=hvd.Sum, compression=compression)

        def out_of_place() -> torch.Tensor:
            return hvd.allreduce(tensors.source, name=name, op=hvd.Sum, compression=compression)

        return Bound(in_place, out_of_place)

    def close(self) -> None:
        """Do nothing: hvd.shutdown is called once for all compressions."""


class CopyContender:
    """Every rank copies its tensor into another one, which is warm."""

    name = YARDSTICK

    def bind(self, tensors: Tensors) -> Bound:
        def copy() -> torch.Tensor:
            return tensors.target.copy_(tensors.source)

        return Bound(copy, copy)

    def close(self) -> None:
        """Do nothing: this contender opens nothing."""


Contender = MpiContender | TorchContender | CopyContender | HorovodContender


def open_contenders(names: list[str], comm: MPI.Comm) -> list[Contender]:
    """Return the named contenders in the order of EVERYONE; import horovod only if it takes part."""
    chosen: list[Contender] = []
    for name in EVERYONE:
        if name not in names:
            continue
        if name == "MPI":
            chosen.append(MpiContender(comm))
        elif name in RIVALS:
            chosen.append(TorchContender(name, comm))
        elif name == YARDSTICK:
            chosen.append(CopyContender())
        else:
            chosen.append(HorovodContender(name))
    return chosen
