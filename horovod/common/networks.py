"""The networks that connect the hosts of a job: pure functions of the addresses of all hosts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_network,
)
from typing import TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Interface: TypeAlias = IPv4Interface | IPv6Interface
Network: TypeAlias = IPv4Network | IPv6Network


@dataclass(frozen=True)
class Description:
    """A host's description of itself.

    `addresses`: (interface, address with prefix). `reached_at`: the host's address at which the launcher's
    ssh arrived, and `reached_from` the address it came from; None for the launcher's machine, or if ssh does
    not tell. `speeds`: interface -> Mbit/s, 0 for unknown.
    """

    addresses: tuple[tuple[str, Interface], ...]
    reached_at: Address | None = None
    reached_from: Address | None = None
    speeds: Mapping[str, int] = field(default_factory=dict)

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
            inside = ip_network(way, strict=False) if "/" in way else None
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
    """The networks of the launcher's ssh, for hosts that share no network (clouds give each host its own).

    [] if a host does not know where ssh reached it.
    """
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
