"""The places of a job's ranks, and the variables that describe a worker's place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from horovod.common.agent_messages import LOCAL_RANK, LOCAL_SIZE, RANK, SIZE, Place

_CROSS_RANK, _CROSS_SIZE, _HOST = "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE", "HOROVOD_HOSTNAME"
PLACE_VARIABLES = (RANK, SIZE, LOCAL_RANK, LOCAL_SIZE, _CROSS_RANK, _CROSS_SIZE, _HOST)
# For a worker's wrapper: the worker's number in an elastic job; which standard streams are terminals.
WORKER, TERMINALS = "HOROVOD_WORKER", "HOROVOD_RUN_TERMINALS"
# For ranks that run a function: the name of its payload, and the descriptor to write its value to.
PAYLOAD, VALUE = "HOROVOD_RUN_PAYLOAD", "HOROVOD_RUN_VALUE"
BIND = "HOROVOD_BIND"  # "auto": the wrapper binds the rank to cores


def places_of(hosts: Sequence[tuple[str, int]], generation: int = 1) -> list[Place]:
    """Return the places of ranks that fill (host, slots) in this order; a host may be named again."""
    names = [name for name, slots in hosts for _ in range(slots)]
    return numbered(names, [names[:rank].count(name) for rank, name in enumerate(names)], generation)


def numbered(
    hosts: Sequence[str],
    local_ranks: Sequence[int],
    generation: int,
    order: Callable[[int], int] = lambda rank: rank,
) -> list[Place]:
    """Return the places of ranks with these hosts and local ranks.

    `order`: rank -> its place among those with its local rank, which the cross rank counts.
    """
    size, names = len(hosts), tuple(hosts)
    across: dict[int, list[int]] = {}
    for rank in sorted(range(size), key=order):
        across.setdefault(local_ranks[rank], []).append(rank)
    places = []
    for rank, (host, local) in enumerate(zip(names, local_ranks, strict=True)):
        cross = across[local].index(rank), len(across[local])
        places.append(Place(generation, rank, size, local, names.count(host), *cross, names))
    return places


def variables_of(place: Place, host: str) -> dict[str, str]:
    """Return a starting worker's place as variables, under Horovod's names."""
    numbers = (place.rank, place.size, place.local_rank, place.local_size, place.cross_rank, place.cross_size)
    return dict(zip(PLACE_VARIABLES, [*map(str, numbers), host], strict=True))
