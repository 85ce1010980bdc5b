"""Ranks that torchrun has started, and all that are told RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT.

They meet in torch's store, which is made by `horovod.torch`: this package imports no framework. torchrun's
agent has one already; without it rank 0 has it, and shares it with what the script itself starts there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from horovod.common import errors
from horovod.common.launched import Launch
from horovod.common.rendezvous.store import Store, StoreRendezvous, assignment_of, start_timeout

__all__ = ["MakeStore", "by_environment", "in_torchs_store", "make_stores_with"]

# Host, port, whether this process has the store or looks for it, seconds.
MakeStore: TypeAlias = Callable[[str, int, bool, float], Store]
_OF_THE_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
_make: MakeStore | None = None


def make_stores_with(make: MakeStore) -> None:
    """Called by the face of a framework that has stores."""
    global _make
    _make = make


def by_environment(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """Where MASTER_ADDR and MASTER_PORT say. ValueError where there is no store."""
    is_host = launch.rank == 0 and environment.get(_OF_THE_AGENT) != "True"
    end = (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))
    return in_torchs_store(launch, environment, ranks, end, is_host)


def in_torchs_store(
    launch: Launch, environment: Mapping[str, str], ranks: Sequence[int], end: tuple[str, int], is_host: bool
) -> StoreRendezvous:
    """In the store at (host, port). ValueError where there is none."""
    host, port = end
    assignment = assignment_of(launch.rank, launch.size, ranks)
    if _make is None:
        raise errors.without_torch(evidence=launch.evidence)
    try:
        store = _make(host, port, is_host, start_timeout())
    except Exception as error:  # of torch's own classes
        done = "cannot open" if is_host else "does not reach"
        why = str(error).partition("\n")[0].rstrip(".")  # without torch's own traceback
        who = {"ranks": [launch.rank], "size": launch.size, "evidence": launch.evidence}
        raise errors.no_use_of_store(**who, done=done, host=host, port=port, why=why) from error
    name = f"torch's store at {host}:{port}"
    return StoreRendezvous(store, assignment, name, host, launch.job(environment))
