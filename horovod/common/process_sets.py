"""Process sets: the ranks an operation runs over; and mpi4py communicators as lists of ranks.

``init(process_sets=[...])`` makes sets all at once; ``add_process_set``, which every rank calls, makes one.
The core knows sets by number; scripts hold ``ProcessSet`` objects. mpi4py is not needed unless a script
passes a communicator.
"""

from __future__ import annotations

import operator
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from horovod.common import belongings, errors, launched
from horovod.common.build_info import build_info
from horovod.common.mpi_here import mpi_here
from horovod.common.sentences import type_name

GLOBAL_ID = 0


def as_ranks(values: Iterable[Any]) -> list[int]:
    """Integers of any type, NumPy's included, as ints. ValueError if a value is not an integer."""
    values = list(values)
    try:
        return [operator.index(value) for value in values]
    except TypeError:
        raise errors.no_whole_numbers(got=repr(values)) from None


class ProcessSet:
    """Ranks that run collectives among themselves.

    ``process_set_id`` is None until the set is registered. ``ranks`` is sorted, or None while unknown (a set
    made from an mpi4py communicator knows its ranks after init()). ``mpi_comm`` is that communicator, or
    None.
    """

    process_set_id: int | None
    ranks: list[int] | None
    mpi_comm: Any

    def __init__(self, ranks_or_comm: Iterable[int] | Any) -> None:
        self.process_set_id = None
        self.mpi_comm = None
        self.ranks = None
        self._own_rank: int | None = None
        if isinstance(ranks_or_comm, Iterable):
            self.ranks = sorted(as_ranks(ranks_or_comm))
        else:
            self.mpi_comm = ranks_or_comm

    def size(self) -> int | None:
        """Number of ranks in the set, or None while it is not registered."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> int | None:
        """This process' position in the set; None if it is not in it, or the set is not registered."""
        if self.process_set_id is None or not self.included():
            return None
        assert self.ranks is not None and self._own_rank is not None
        return self.ranks.index(self._own_rank)

    def included(self) -> bool | None:
        """Whether this process belongs to the set, or None while its ranks are unknown."""
        if self.ranks is None or self._own_rank is None:
            return None
        return self._own_rank in self.ranks

    def _assign(self, process_set_id: int | None, own_rank: int | None, ranks: list[int] | None) -> None:
        self.process_set_id = process_set_id
        self._own_rank = own_rank
        self.ranks = ranks

    def _forget(self) -> None:
        """Unregister the set. Its ranks stay, so that it can be added again."""
        self.process_set_id = None
        self._own_rank = None

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        return self  # a copied module runs over the same ranks

    def __reduce__(self) -> Any:
        """Pickle support: the global set becomes the loader's global set; any other is unregistered there."""
        return "global_process_set" if self is global_process_set else (ProcessSet, (self.ranks,))

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )


class _Global(ProcessSet):
    """All ranks of the caller's job: one object serves all jobs of a process."""

    def __init__(self) -> None:
        pass

    @property
    def _of_job(self) -> _AllRanks:
        return belongings.own(_AllRanks)

    def size(self) -> int | None:
        ranks = self._of_job.ranks
        return None if ranks is None else len(ranks)

    def _assign(self, process_set_id: int | None, own_rank: int | None, ranks: list[int] | None) -> None:
        self._of_job.own_rank, self._of_job.ranks = own_rank, ranks

    def _forget(self) -> None:
        """Do nothing: the global set is always registered."""

    process_set_id = property(lambda self: GLOBAL_ID)
    ranks = property(lambda self: self._of_job.ranks)
    _own_rank = property(lambda self: self._of_job.own_rank)
    mpi_comm = property(
        lambda self: self._of_job.mpi_comm, lambda self, comm: setattr(self._of_job, "mpi_comm", comm)
    )


class _AllRanks:
    own_rank: int | None = None
    ranks: list[int] | None = None
    mpi_comm: Any = None


global_process_set: ProcessSet = _Global()


def checked_ranks(ranks: Sequence[int], size: int, known: Sequence[Sequence[int]]) -> list[int]:
    """The sorted ranks of a new set; no ranks means all. ValueError for wrong ones, or a known set."""
    chosen = sorted(ranks) if len(ranks) > 0 else list(range(size))
    if any(not 0 <= rank < size for rank in chosen):
        raise errors.no_such_ranks(members=list(ranks), last=size - 1)
    if len(set(chosen)) < len(chosen):
        raise errors.named_twice(members=list(ranks))
    if any(list(other) == chosen for other in known):
        raise errors.exists_already(members=chosen)
    return chosen


def is_communicator(value: Any) -> bool:
    """Whether the value is an mpi4py communicator."""
    mpi = sys.modules.get("mpi4py.MPI")
    return mpi is not None and isinstance(value, mpi.Comm)


def launched_ranks(comm: Any) -> list[int]:
    """The ranks among the launched processes that init(comm=...) names, in their order; [] for all."""
    if comm is None:
        return []
    if is_communicator(comm):
        if not mpi_here(build_info().mpi).built:
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

    NotImplementedError if ``parent`` is none; ValueError if ``comm`` is none, or has a process outside of it.
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
