"""The addresses at which a job's ranks listen: a pure function of all cards, so that all ranks agree."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.common import errors, networks
from horovod.common.networks import Network
from horovod.common.rendezvous.card import Card

__all__ = ["addresses"]

_LOOPBACKS = ("127.0.0.1", "::1")


def addresses(cards: Sequence[Card]) -> list[list[str]]:
    """The addresses of each rank, by rank.

    A loopback address, if all ranks reach each other at it. Otherwise the addresses that the rank was set to
    listen at, or one in the network that connects the hosts, or its address towards the meeting place.

    ValueError, the same on all ranks, if a rank has none.
    """
    if loopback := _loopback(cards):
        return [[loopback]] * len(cards)
    network = _connecting(cards)
    return [_of_rank(rank, card, network) for rank, card in enumerate(cards)]


def _loopback(cards: Sequence[Card]) -> str:
    """The loopback address at which all ranks reach each other, or ""."""
    if len({card.namespace for card in cards}) > 1:
        return ""
    own = {str(at.ip) for _, at, _ in cards[0].addresses}
    return next((address for address in _LOOPBACKS if address in own), "")


def _connecting(cards: Sequence[Card]) -> Network | None:
    """The fastest network that all hosts share.

    Among equals, or if speeds are unknown, the one through which ranks met: it is known to work.
    """
    hosts = list({card.namespace: card.description() for card in cards}.values())
    candidates = networks.fastest(hosts, networks.shared(hosts))
    routes = [card.route for card in cards if card.route is not None]

    def merit(network: Network) -> tuple[bool, int]:
        return any(route in network for route in routes), networks.speed(hosts, network)

    return max(candidates, key=merit, default=None)


def _of_rank(rank: int, card: Card, network: Network | None) -> list[str]:
    host = card.description()
    if card.wanted:
        found = [address for _, address in host.along(card.wanted)]
        if not found:
            has = [f"{name} {at}" for name, at in host.addresses] or ["none that others could reach"]
            wanted = list(card.wanted)
            raise errors.no_address_as_told(ranks=[rank], host=card.name, wanted=wanted, addresses=has)
        return found
    if network is not None:
        return [str(min(host.networks()[network], key=networks.order))]
    if card.route is None:
        raise errors.no_address(ranks=[rank], host=card.name)
    return [str(card.route)]
