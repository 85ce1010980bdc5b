"""Which place each worker has in a membership, given who comes before whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.runner.elastic.actions import Place

__all__ = ["Seat", "memberships"]


@dataclass(frozen=True)
class Seat:
    """A worker on its host; `slot` is the local rank of its start, unique among the host's live workers."""

    worker: int
    host: str
    slot: int


def memberships(generation: int, seats: Sequence[Seat]) -> Mapping[int, Place]:
    """Worker -> its place; ranks are positions in `seats`.

    Local ranks are positions among the host's workers in order of their slots: so a worker keeps its local
    rank, and its GPU, unless one before it has gone. Cross ranks: hosts in order of their first rank.
    """
    by_host: dict[str, list[Seat]] = {}
    for seat in seats:
        by_host.setdefault(seat.host, []).append(seat)
    local_ranks = {
        seat.worker: position
        for on_host in by_host.values()
        for position, seat in enumerate(sorted(on_host, key=lambda seat: seat.slot))
    }
    hosts = tuple(seat.host for seat in seats)
    places = {}
    for rank, seat in enumerate(seats):
        local_rank = local_ranks[seat.worker]
        across = [host for host, on_host in by_host.items() if len(on_host) > local_rank]
        places[seat.worker] = Place(
            generation=generation,
            rank=rank,
            size=len(seats),
            local_rank=local_rank,
            local_size=len(by_host[seat.host]),
            cross_rank=across.index(seat.host),
            cross_size=len(across),
            hosts=hosts,
        )
    return places
