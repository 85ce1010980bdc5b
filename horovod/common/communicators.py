"""mpi4py communicators as lists of ranks. mpi4py is not needed unless a script passes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from horovod.common import launched, util
from horovod.common.process_sets import as_ranks

__all__ = ["is_communicator", "launched_ranks", "ranks_within"]


def is_communicator(value: Any) -> bool:
    """Whether the value is one of mpi4py's communicators."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def launched_ranks(comm: Any) -> list[int]:
    """The ranks among the launched processes that init(comm=...) names, in their order; [] for all."""
    if comm is None:
        return []
    if is_communicator(comm):
        if not util.mpi_built():
            raise ValueError("init(comm=...): this horovod was built without MPI; leave comm out.")
        launch = launched.detect(os.environ)
        if launch.meets not in (launched.MPI, launched.NOWHERE):
            raise ValueError(
                "init(comm=...): no MPI has started this process, which is one of several "
                f"({launch.evidence}), so a communicator does not know the others; give a list of ranks, or "
                "leave comm out."
            )
        world = sys.modules["mpi4py.MPI"].COMM_WORLD
        ranks = _translated(comm, world)
        return [] if ranks == list(range(world.Get_size())) else ranks
    if not isinstance(comm, Iterable) or isinstance(comm, str | Mapping):
        raise ValueError(
            f"init(comm={comm!r}): comm must be None, a list of ranks or an mpi4py communicator, not "
            f"{type(comm)}."
        )
    return as_ranks(comm)


def ranks_within(comm: Any, parent: Any) -> list[int]:
    """The ranks in ``parent`` of a communicator's processes.

    Raises:
        NotImplementedError: ``parent`` is no communicator.
        ValueError: ``comm`` is none, or holds a process that is not in ``parent``.
    """
    if not is_communicator(comm):
        raise ValueError(
            f"a ProcessSet is made from a list of ranks or an mpi4py communicator, not {comm!r}."
        )
    if not is_communicator(parent):
        raise NotImplementedError(
            "a ProcessSet made from a communicator needs hvd.init(comm=...) with a communicator too, "
            "for example "
            "hvd.init(MPI.COMM_WORLD, process_sets=[...])."
        )
    return _translated(comm, parent)


def _translated(comm: Any, parent: Any) -> list[int]:
    mpi = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise ValueError("MPI.COMM_NULL has no ranks; pass a communicator that this process is in.")
    group, parent_group = comm.Get_group(), parent.Get_group()
    try:
        translated = mpi.Group.Translate_ranks(group, list(range(group.size)), parent_group)
        ranks = [int(rank) for rank in translated]
    finally:
        group.Free()
        parent_group.Free()
    if mpi.UNDEFINED in ranks:
        raise ValueError("a communicator holds a process that is not in the one given to hvd.init().")
    return ranks
