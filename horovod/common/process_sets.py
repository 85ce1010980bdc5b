"""Process sets: the ranks an operation runs over. This release knows one, the set of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["ProcessSet", "global_process_set", "require_global"]

GLOBAL_ID = 0


class ProcessSet:
    """Ranks that run collectives among themselves.

    ``process_set_id`` is None until the set is registered; ``ranks`` is sorted, or None while unknown.
    """

    process_set_id: int | None
    ranks: list[int] | None
    mpi_comm: Any

    def __init__(self, ranks_or_comm: Sequence[int] | Any) -> None:
        self.process_set_id = None
        self.mpi_comm = None
        self.ranks = None
        self._own_rank: int | None = None
        if isinstance(ranks_or_comm, Sequence):
            self.ranks = sorted(ranks_or_comm)
        else:
            self.mpi_comm = ranks_or_comm

    def size(self) -> int | None:
        """Number of ranks in the set, or None while it is not registered."""
        if self.process_set_id is None or self.ranks is None:
            return None
        return len(self.ranks)

    def rank(self) -> int | None:
        """This process' position in the set, or None when it is not registered or this process is not in
        it.
        """
        if self.process_set_id is None or not self.included():
            return None
        assert self.ranks is not None and self._own_rank is not None
        return self.ranks.index(self._own_rank)

    def included(self) -> bool | None:
        """Whether this process belongs to the set, or None while its ranks are unknown."""
        if self.ranks is None or self._own_rank is None:
            return None
        return self._own_rank in self.ranks

    def _place(self, own_rank: int | None, ranks: list[int] | None) -> None:
        """Set or clear what init() and shutdown() know about the set."""
        self._own_rank = own_rank
        self.ranks = ranks

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessSet:
        return self  # a copied module runs over the same ranks

    def __reduce__(self) -> Any:
        """Pickled: the global set is that of whoever loads it, any other is not registered there."""
        return "global_process_set" if self is global_process_set else (ProcessSet, (self.ranks,))

    def __str__(self) -> str:
        return (
            f"ProcessSet(process_set_id={self.process_set_id}, ranks={self.ranks}, mpi_comm={self.mpi_comm})"
        )


def _all_ranks() -> ProcessSet:
    everyone = ProcessSet([])
    everyone.ranks = None
    everyone.process_set_id = GLOBAL_ID
    return everyone


global_process_set = _all_ranks()


def require_global(process_set: ProcessSet) -> None:
    """Raise ValueError unless ``process_set`` is the set of all ranks."""
    if getattr(process_set, "process_set_id", None) != GLOBAL_ID:
        raise ValueError(
            f"process_set={process_set} is not registered: process sets other than global_process_set come "
            "with a later release of this package; leave the argument out to run over all ranks."
        )
