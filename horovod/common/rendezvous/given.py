"""hvd.init(store=, rank=, size=): ranks that meet in what the script has."""

from __future__ import annotations

from typing import Any

from horovod import _native as native
from horovod.common import communicators, errors
from horovod.common.jobs import OpenWorld
from horovod.common.process_sets import as_ranks
from horovod.common.rendezvous.meeting import open_over_tcp
from horovod.common.rendezvous.store import Store, StoreRendezvous, assignment_of

__all__ = ["host_of", "opening"]


def opening(comm: Any, store: Any, rank: Any, size: Any) -> OpenWorld | None:
    """How the world is opened; None where none of the three was given. ValueError: an argument is wrong."""
    given = {"store": store, "rank": rank, "size": size}
    missing = [name for name, value in given.items() if value is None]
    if len(missing) == len(given):
        return None
    if missing:
        raise errors.store_lacks(missing=" and ".join(missing))
    if not all(callable(getattr(store, method, None)) for method in ("set", "get")):
        raise errors.not_a_store(got=repr(store)[:80])
    number, count = as_ranks([rank, size])
    if not 0 <= number < count:
        raise errors.no_such_rank(rank=number, size=count)
    if communicators.is_communicator(comm):
        raise errors.store_and_communicator()
    return _opening(store, number, count)


def _opening(store: Store, rank: int, size: int) -> OpenWorld:
    def open_world(settings: native.Settings, ranks: list[int]) -> native.World:
        assignment = assignment_of(rank, size, ranks)
        return open_over_tcp(
            settings, StoreRendezvous(store, assignment, "the store given to hvd.init()", host_of(store))
        )

    return open_world


def host_of(store: Any) -> str:
    """Where torch's TCPStore is, below what others wrap around it; "" for another store."""
    while (below := getattr(store, "underlying_store", None)) is not None:
        store = below
    host = getattr(store, "host", "")
    return host if isinstance(host, str) else ""
