"""mpi4py communicators as lists of ranks. mpi4py is not needed unless a script passes one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from horovod.common import errors, launched, util
from horovod.common.process_sets import as_ranks
from horovod.common.sentences import type_name

__all__ = ["is_communicator", "launched_ranks", "ranks_within"]


def is_communicator(value: Any) -> bool:
    """Whether the value is an mpi4py communicator."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def launched_ranks(comm: Any) -> list[int]:
    """The ranks among the launched processes that init(comm=...) names, in their order; [] for all."""
    if comm is None:
        return []
    if is_communicator(comm):
        if not util.mpi_built():
            raise errors.no_mpi()
        launch = launched.detect(os.environ)
        if launch.meets not in (launched.MPI, launched.NOWHERE):
            raise errors.not_of_mpi(evidence=launch.evidence)
        world = sys.modules["mpi4py.MPI"].COMM_WORLD
        ranks = _translated(comm, world)
        return [] if ranks == list(range(world.Get_size())) else ranks
    if not isinstance(comm, Iterable) or isinstance(comm, str | Mapping):
        raise errors.not_a_comm(got=repr(comm), type=type_name(comm))
    return as_ranks(comm)


def ranks_within(comm: Any, parent: Any) -> list[int]:
    """The ranks in ``parent`` of a communicator's processes.

    Raises:
        NotImplementedError: ``parent`` is not a communicator.
        ValueError: ``comm`` is not one, or holds a process that is not in ``parent``.
    """
    if not is_communicator(comm):
        raise errors.not_ranks_or_communicator(got=repr(comm))
    if not is_communicator(parent):
        raise errors.needs_communicator()
    return _translated(comm, parent)


def _translated(comm: Any, parent: Any) -> list[int]:
    mpi = sys.modules["mpi4py.MPI"]
    if comm == mpi.COMM_NULL:
        raise errors.null_communicator()
    group, parent_group = comm.Get_group(), parent.Get_group()
    try:
        translated = mpi.Group.Translate_ranks(group, list(range(group.size)), parent_group)
        ranks = [int(rank) for rank in translated]
    finally:
        group.Free()
        parent_group.Free()
    if mpi.UNDEFINED in ranks:
        raise errors.outside_process()
    return ranks
