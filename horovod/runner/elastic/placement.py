"""Which place each worker has in a membership, given who comes before whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from horovod.runner.elastic.actions import Place

__all__ = ["Seat", "memberships"]


@dataclass(frozen=True)
class Seat:
    """A worker on its host. `slot`: of its start; of one that has been in a membership (not `is_new`) its
    first local rank, which no other such worker of the host has.
    """

    worker: int
    host: str
    slot: int
    is_new: bool = True


def memberships(generation: int, seats: Sequence[Seat]) -> Mapping[int, Place]:
    """Worker -> its place; ranks are positions in `seats`.

    Cross ranks: hosts in order of their first rank.
    """
    by_host: dict[str, list[Seat]] = {}
    for seat in seats:
        by_host.setdefault(seat.host, []).append(seat)
    local_ranks: dict[int, int] = {}
    for on_host in by_host.values():
        local_ranks |= _local_ranks(on_host)
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


def _local_ranks(on_host: Sequence[Seat]) -> dict[int, int]:
    """Worker -> its local rank, of the workers of one host.

    A script takes the GPU of its first local rank, and keeps it. So a member's local rank is its slot, as
    long as that is low enough: numbers that are left to newcomers are no member's GPU.
    """
    count = len(on_host)
    found: dict[int, Seat] = {}
    for seat in sorted(on_host, key=lambda seat: seat.is_new):
        if seat.slot < count:
            found.setdefault(seat.slot, seat)
    rest = [seat for seat in on_host if found.get(seat.slot) != seat]
    rest.sort(key=lambda seat: seat.slot)
    free = [number for number in range(count) if number not in found]
    found |= dict(zip(free, rest, strict=True))
    return {seat.worker: number for number, seat in found.items()}
