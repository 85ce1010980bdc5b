"""Which rank is where in a fixed job: pure functions of hosts and slots."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.common.agent_messages import Place

__all__ = ["PLACE_VARIABLES", "WORKER", "places_of", "variables_of"]

_NUMBERS = ("rank", "size", "local_rank", "local_size", "cross_rank", "cross_size")
_HOST = "HOROVOD_HOSTNAME"
WORKER = "HOROVOD_WORKER"  # its number, in an elastic job: for its wrapper alone
PLACE_VARIABLES = (*(f"HOROVOD_{name.upper()}" for name in _NUMBERS), _HOST)


def places_of(hosts: Sequence[tuple[str, int]], generation: int = 1) -> list[Place]:
    """Of ranks that fill (host, slots) in this order; a host may be named again."""
    names = [name for name, slots in hosts for _ in range(slots)]
    local_ranks = [names[:rank].count(name) for rank, name in enumerate(names)]
    return [
        Place(
            generation,
            rank,
            len(names),
            local_ranks[rank],
            names.count(name),
            # among those that have this number on their hosts
            cross_rank=local_ranks[:rank].count(local_ranks[rank]),
            cross_size=local_ranks.count(local_ranks[rank]),
            hosts=tuple(names),
        )
        for rank, name in enumerate(names)
    ]


def variables_of(place: Place, host: str) -> dict[str, str]:
    """What a worker's environment says of its place when it starts, under Horovod's names."""
    told = [*(str(getattr(place, name)) for name in _NUMBERS), host]
    return dict(zip(PLACE_VARIABLES, told, strict=True))
