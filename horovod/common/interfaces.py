"""The addresses of this host. Imports no core: the launcher uses this, and its agent on other hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv6Address, ip_address, ip_interface

from horovod.common.networks import Address, Interface

__all__ = ["address_towards", "addresses"]

_ANYWHERE = ("192.0.2.1", "2001:db8::1")  # unassigned addresses: the way there is the default route
_NO_SPEED = 65535  # -1 as 16 bits
_DISCARD = 9  # a port; nothing is sent


def addresses() -> list[tuple[str, Interface, int]]:
    """(interface, address with prefix, Mbit/s or 0) of each address of an interface that is up."""
    import psutil

    states = psutil.net_if_stats()
    return [
        (
            name,
            ip_interface(f"{entry.address.partition('%')[0]}/{_prefix(entry.netmask)}"),
            _known(states[name].speed),
        )
        for name, entries in psutil.net_if_addrs().items()
        for entry in entries
        if entry.family in (socket.AF_INET, socket.AF_INET6) and entry.netmask
        if name in states and states[name].isup
    ]


def _known(speed: int) -> int:
    """The speed, or 0 for the values by which drivers mean unknown."""
    return speed if 0 < speed < 2**31 - 1 and speed != _NO_SPEED else 0


def _prefix(netmask: str) -> str:
    """The netmask after an address's slash; of IPv6, its length."""
    return str(int(IPv6Address(netmask)).bit_count()) if ":" in netmask else netmask


def address_towards(host: str) -> Address | None:
    """This host's address towards another host; for "" or this host's name, the one on its default route.

    None if it has no address that others could reach. Sends only what the name lookup needs.
    """
    for family, target in _targets(host):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, _DISCARD))
                own = ip_address(probe.getsockname()[0].partition("%")[0])
        except OSError:  # no route there, or none of that family
            continue
        if not (own.is_loopback or own.is_unspecified or own.is_link_local):
            return own
    return None


def _targets(host: str) -> Iterator[tuple[socket.AddressFamily, str]]:
    if host:
        try:
            found = socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM)
        except (OSError, UnicodeError):  # no such name; not a valid name
            found = []
        for family, _, _, _, address in found:
            yield family, str(address[0])
    yield socket.AF_INET, _ANYWHERE[0]
    yield socket.AF_INET6, _ANYWHERE[1]
