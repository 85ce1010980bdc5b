"""How unconnected ranks become a world over TCP, at any meeting place.

They exchange messages twice. First each rank's *card*: its name, its addresses, a random nonce. From all
cards, all ranks choose alike where each listens. Each opens a port there, and sends the port in the second
exchange, or its error: then all raise the same ValueError. Connected ranks then agree on all else.

A connection requires a secret: of HOROVOD_SECRET, if that is set, and of all cards' nonces. Without
HOROVOD_SECRET the job is as safe as the meeting place: a process that can read there can connect.
"""

from __future__ import annotations

import functools
import hmac
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from horovod import _native as native
from horovod.common import errors, networks
from horovod.common.networks import Network
from horovod.common.options import BY_VARIABLE
from horovod.common.rendezvous import card as cards_of
from horovod.common.rendezvous.card import Card

# Opens the world of the launched ranks in the list, or of all if it is empty.
OpenWorld: TypeAlias = Callable[[native.Settings, list[int]], native.World]

SHORTEST_SECRET = 16  # bytes
_HIGHEST_PORT = 65535
_LOOPBACKS = ("127.0.0.1", "::1")
_log = logging.getLogger("horovod")


class Rendezvous(Protocol):
    """A place where ranks meet. ``name``: for logs and errors."""

    @property
    def name(self) -> str: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def host(self) -> str:
        """The host of the meeting place, or ""."""

    def allgather(self, topic: str, value: bytes) -> list[bytes]:
        """Every rank's value, by rank. Collective. ValueError: a rank is missing, or the place is broken."""

    def done(self) -> None:
        """Note that all ranks have all exchanged values: the rest may be removed."""


class _Said(NamedTuple):
    """A rank's message in the second exchange: its port at each of its addresses, and a proof of the key."""

    ports: list[int]
    proof: str


def open_over_tcp(
    settings: native.Settings, rendezvous: Rendezvous, environment: Mapping[str, str] = os.environ
) -> native.World:
    """The world of the ranks that meet. Collective. ValueError, on all ranks, if one cannot take part."""
    if rendezvous.size == 1:
        return native.open_world(settings, "", 1, "", [])
    cards, secret = _gather_cards(settings, rendezvous, environment)
    if not secret and rendezvous.rank == 0:
        _tell_who_can_connect(rendezvous.name)
    key = session_key(secret, cards)
    addresses = listening_addresses(cards)
    listener, complaint = _listener(addresses[rendezvous.rank], environment)
    said = _gather_ports(rendezvous, cards, addresses, listener, complaint, key)
    assert listener is not None, "this rank's complaint has been raised"
    endpoints = [
        [
            f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
            for address, port in zip(*ends, strict=True)
        ]
        for ends in zip(addresses, (each.ports for each in said), strict=True)
    ]
    _log.debug(
        "horovod: rank %d of %d met the others by way of %s, and listens at %s.",
        *(rendezvous.rank, rendezvous.size, rendezvous.name, ", ".join(endpoints[rendezvous.rank])),
    )
    hosts, names = [card.host for card in cards], [card.name for card in cards]
    world = native.open_world_over_tcp(settings, listener, rendezvous.rank, hosts, names, endpoints, key)
    rendezvous.done()
    return world


@functools.cache  # once per name
def _tell_who_can_connect(name: str) -> None:
    _log.info(
        "horovod: HOROVOD_SECRET is not set: who can read what ranks told each other by way of %s can "
        "connect to them.",
        name,
    )


def given_secret(environment: Mapping[str, str]) -> bytes:
    """HOROVOD_SECRET's secret, or b"". ValueError, which does not show it, if it is too short."""
    text: str = BY_VARIABLE["HOROVOD_SECRET"].read(environment)
    secret = text.encode()
    if secret and len(secret) < SHORTEST_SECRET:
        raise errors.short_secret(bytes=len(secret), least=SHORTEST_SECRET)
    return secret


def session_key(secret: bytes, cards: Sequence[Card]) -> bytes:
    """The job's secret, which only its ranks know; 32 bytes."""
    return hmac.digest(secret, b"horovod session" + b"".join(card.nonce for card in cards), "sha256")


def tcp_ports(environment: Mapping[str, str]) -> tuple[int, int]:
    """The first and the last port of HOROVOD_TCP_PORTS; 0 and 0 for any. ValueError for a wrong range."""
    option = BY_VARIABLE["HOROVOD_TCP_PORTS"]
    text: str = option.read(environment)
    if not text:
        return 0, 0
    first, _, last = text.partition("-")
    if not 0 < int(first) <= int(last or first) <= _HIGHEST_PORT:
        raise errors.wrong_ports(
            setting=option.variable, value=text, expected=option.wanted(), most=_HIGHEST_PORT
        )
    return int(first), int(last or first)


def said_by(rank: int, text: bytes, card: Card, count: int) -> _Said:
    """A rank's ports and proof for `count` addresses. ValueError, with its reason if it cannot listen."""
    record = cards_of.record_of(rank, text)
    why, ports, proof = record.get("error"), record.get("ports"), record.get("proof")
    if isinstance(why, str) and why.isprintable():
        raise errors.cannot_listen(ranks=[rank], host=card.name, why=why)
    if not isinstance(ports, list) or len(ports) != count or not isinstance(proof, str):
        raise cards_of.misunderstood(rank, text)
    if not all(type(port) is int and 0 < port <= _HIGHEST_PORT for port in ports):
        raise cards_of.misunderstood(rank, text)
    return _Said(ports, proof)


def _gather_cards(
    settings: native.Settings, rendezvous: Rendezvous, environment: Mapping[str, str]
) -> tuple[list[Card], bytes]:
    """All cards, and HOROVOD_SECRET's secret. ValueError, on all ranks, if a rank has no card."""
    secret = b""
    try:
        if settings.asks_for_mpi:
            raise errors.not_by_mpi(place=rendezvous.name)
        secret = given_secret(environment)
        mine = cards_of.own(rendezvous.host, bool(secret), environment).to_bytes()
    except (ValueError, OSError, ImportError) as error:
        mine = cards_of.complaint(error)
    cards = [cards_of.parsed(rank, text) for rank, text in enumerate(rendezvous.allgather("card", mine))]
    knowing = [rank for rank, card in enumerate(cards) if card.has_secret]
    if knowing and len(knowing) < len(cards):
        raise errors.secret_on_some(ranks=knowing, size=len(cards))
    return cards, secret


def listening_addresses(cards: Sequence[Card]) -> list[list[str]]:
    """The addresses at which each rank listens, by rank: a function of all cards, so that all ranks agree.

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
    """The fastest network that all hosts share; of equals, the one through which ranks met, as it works."""
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


def _listener(
    addresses: Sequence[str], environment: Mapping[str, str]
) -> tuple[native.TcpListener | None, str]:
    """A listener at these addresses, or the reason for its failure."""
    try:
        return native.TcpListener(list(addresses), *tcp_ports(environment)), ""
    except (ValueError, OSError) as error:
        return None, " ".join(str(error).split())


def _gather_ports(
    rendezvous: Rendezvous,
    cards: Sequence[Card],
    addresses: Sequence[Sequence[str]],
    listener: native.TcpListener | None,
    complaint: str,
    key: bytes,
) -> list[_Said]:
    ends = listener.endpoints if listener is not None else []
    ports = {"ports": [int(end.rpartition(":")[2]) for end in ends], "proof": _proof(key, rendezvous.rank)}
    mine = json.dumps({"error": complaint} if complaint else ports).encode()
    texts = rendezvous.allgather("ports", mine)
    said = [
        said_by(rank, text, card, len(at))
        for rank, (text, card, at) in enumerate(zip(texts, cards, addresses, strict=True))
    ]
    strange = [rank for rank, each in enumerate(said) if not _is_proof(each.proof, key, rank)]
    if strange:  # connections would be refused without a reason
        raise errors.secrets_differ(rank=rendezvous.rank, ranks=strange)
    return said


def _proof(key: bytes, rank: int) -> str:
    """A proof that a rank knows the key, which does not reveal it."""
    return hmac.digest(key, b"horovod rank %d" % rank, "sha256").hex()


def _is_proof(text: str, key: bytes, rank: int) -> bool:
    return hmac.compare_digest(text.encode(errors="replace"), _proof(key, rank).encode())
