"""The addresses of this host; and the networks that connect a job's hosts, pure functions of all addresses.

Imports no core: the launcher uses this, and its agent on other hosts.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface: TypeAlias = ipaddress.IPv4Interface | ipaddress.IPv6Interface
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

_ANYWHERE = ("192.0.2.1", "2001:db8::1")  # unassigned addresses: the way there is the default route
_NO_SPEED = 65535  # -1 as 16 bits
_DISCARD = 9  # a port; nothing is sent


@dataclass(frozen=True)
class Description:
    addresses: tuple[tuple[str, Interface], ...]  # (interface, address with prefix)
    # Where the launcher's ssh arrived, and came from; None on its own machine, or if ssh does not tell.
    reached_at: Address | None = None
    reached_from: Address | None = None
    speeds: Mapping[str, int] = field(default_factory=dict)  # interface -> Mbit/s, 0 for unknown

    def networks(self) -> dict[Network, set[Address]]:
        """Its networks, with its addresses in each; without networks that end at the host itself."""
        found: dict[Network, set[Address]] = {}
        for _, address in self.addresses:
            if not address.ip.is_loopback and not address.ip.is_link_local:
                found.setdefault(address.network, set()).add(address.ip)
        return found

    def interfaces_in(self, networks: Iterable[Network]) -> list[str]:
        return [name for name, address in self.addresses if address.network in set(networks)]

    def along(self, ways: Sequence[str]) -> list[tuple[str, str]]:
        """(interface, address) for each way it has: `ways` are interfaces, or networks as 10.0.0.0/8."""
        ends = []
        for way in ways:
            inside = ipaddress.ip_network(way, strict=False) if "/" in way else None
            found = [(n, str(a.ip)) for n, a in self.addresses if (a.ip in inside if inside else n == way)]
            ends += found[:1]
        return ends

    def network_of(self, address: Address | None) -> Network | None:
        """The network of the interface that has this address."""
        found = (a.network for _, a in self.addresses if a.ip == address and not a.is_loopback)
        return next(found, None)


@dataclass(frozen=True)
class Choice:
    """Networks, and names of interfaces over all hosts, that ranks use; empty if none could be determined."""

    networks: tuple[str, ...] = ()  # as 10.0.0.0/8
    interfaces: tuple[str, ...] = ()


def order(address: Address) -> tuple[int, int]:
    """Sort key of addresses: IPv4 first."""
    return address.version, int(address)


def shared(descriptions: Sequence[Description]) -> list[Network]:
    """Networks that all hosts are in, in the first host's order.

    Bridges of containers and virtual machines have the same address on every host: a network in which two
    hosts have the same address connects nothing.
    """
    all_networks = [description.networks() for description in descriptions]
    found = []
    for network in all_networks[0] if all_networks else ():
        addresses = [networks.get(network, set()) for networks in all_networks]
        distinct = set().union(*addresses)
        if all(addresses) and len(distinct) == sum(map(len, addresses)):
            found.append(network)
    return found


def routed(hosts: Sequence[Description], launcher: Description) -> list[Network]:
    """The networks of ssh, for hosts that share none (as in clouds); [] if a host does not know its own."""
    found: list[Network] = []
    for host in hosts:
        if host is not launcher:
            ends = [host.network_of(host.reached_at)]
        else:
            ends = [launcher.network_of(other.reached_from) for other in hosts if other is not launcher]
        for network in ends:
            if network is None:
                return []
            if network not in found:
                found.append(network)
    return found


def ring(
    names: Sequence[str], hosts: Mapping[str, Description], networks: Sequence[Network]
) -> dict[str, list[Address]]:
    """host -> the addresses of the next host in these networks, which it must reach."""
    pairs = zip(names, [*names[1:], *names[:1]], strict=True)
    return {
        name: sorted(
            (a.ip for _, a in hosts[other].addresses if any(a.ip in network for network in networks)),
            key=order,
        )
        for name, other in pairs
        if name != other
    }


def reachable(networks: Sequence[Network], unreached: Mapping[str, Sequence[Address]]) -> list[Network]:
    """The networks in which every host reached the next one."""
    missed = [address for addresses in unreached.values() for address in addresses]
    return [network for network in networks if not any(address in network for address in missed)]


def speed(hosts: Sequence[Description], network: Network) -> int:
    """The speed of the slowest host in a network, Mbit/s; 0 if a host does not know its speed."""
    return min(
        max((host.speeds.get(name, 0) for name in host.interfaces_in([network])), default=0) for host in hosts
    )


def fastest(hosts: Sequence[Description], networks: Sequence[Network]) -> list[Network]:
    """The networks without those known to be slower than another: ranks would load all of them equally."""
    speeds = [speed(hosts, network) for network in networks]
    best = max(speeds, default=0)
    return [network for network, its in zip(networks, speeds, strict=True) if its in (0, best)]


def choice(hosts: Sequence[Description], networks: Sequence[Network]) -> Choice:
    interfaces = {name for host in hosts for name in host.interfaces_in(networks)}
    return Choice(tuple(map(str, networks)), tuple(sorted(interfaces)))


def addresses() -> list[tuple[str, Interface, int]]:
    """(interface, address with prefix, Mbit/s or 0) of each address of an interface that is up."""
    import psutil

    states = psutil.net_if_stats()
    return [
        (
            name,
            ipaddress.ip_interface(f"{entry.address.partition('%')[0]}/{_prefix(entry.netmask)}"),
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
    return str(int(ipaddress.IPv6Address(netmask)).bit_count()) if ":" in netmask else netmask


def address_towards(host: str) -> Address | None:
    """This host's address towards another host; for "" or this host's name, the one on its default route.

    None if it has no address that others could reach. Sends only what the name lookup needs.
    """
    for family, target in _targets(host):
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                probe.connect((target, _DISCARD))
                own = ipaddress.ip_address(probe.getsockname()[0].partition("%")[0])
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
