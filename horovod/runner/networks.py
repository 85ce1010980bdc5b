"""Which networks connect the hosts of a job: pure functions of the addresses that every host has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface, IPv4Network


@dataclass(frozen=True)
class Description:
    """What a host says about itself.

    `addresses`: (interface, address with prefix), IPv4. `reached_at`: the address at which our ssh arrived
    there, and `reached_from` the one it came from; None for this machine, or where ssh does not say.
    `speeds`: interface -> Mbit/s, 0 for unknown.
    """

    addresses: tuple[tuple[str, IPv4Interface], ...]
    reached_at: IPv4Address | None = None
    reached_from: IPv4Address | None = None
    speeds: Mapping[str, int] = field(default_factory=dict)

    def networks(self) -> dict[IPv4Network, set[IPv4Address]]:
        """The networks it is in, with its addresses there; none that ends at the host itself."""
        found: dict[IPv4Network, set[IPv4Address]] = {}
        for _, address in self.addresses:
            if not address.is_loopback and not address.is_link_local:
                found.setdefault(address.network, set()).add(address.ip)
        return found

    def interfaces_in(self, networks: Iterable[IPv4Network]) -> list[str]:
        return [name for name, address in self.addresses if address.network in set(networks)]

    def along(self, ways: Sequence[str]) -> list[tuple[str, str]]:
        """(interface, address) for each way it has: `ways` are interfaces, or networks as 10.0.0.0/8."""
        ends = []
        for way in ways:
            inside = IPv4Network(way, strict=False) if "/" in way else None
            found = [(n, str(a.ip)) for n, a in self.addresses if (a.ip in inside if inside else n == way)]
            ends += found[:1]
        return ends

    def network_of(self, address: IPv4Address | None) -> IPv4Network | None:
        """The network of the interface that has this address."""
        found = (a.network for _, a in self.addresses if a.ip == address and not a.is_loopback)
        return next(found, None)


@dataclass(frozen=True)
class Choice:
    """What ranks and mpirun's daemons are told to use; nothing where nothing could be found out."""

    networks: tuple[str, ...] = ()  # of the ranks, as 10.0.0.0/8
    daemon_networks: tuple[str, ...] = ()  # of mpirun's daemons and mpirun itself, one at most
    interfaces: tuple[str, ...] = ()  # names of the ranks' interfaces, over all hosts
    interface: str = ""  # the one name that serves on every host, if there is one


def shared(descriptions: Sequence[Description]) -> list[IPv4Network]:
    """Networks that all hosts are in, in the first host's order.

    Bridges of containers and virtual machines have one and the same address on every host: a network in which
    two hosts have the same address connects nothing.
    """
    all_networks = [description.networks() for description in descriptions]
    found = []
    for network in all_networks[0] if all_networks else ():
        addresses = [networks.get(network, set()) for networks in all_networks]
        distinct = set().union(*addresses)
        if all(addresses) and len(distinct) == sum(map(len, addresses)):
            found.append(network)
    return found


def routed(hosts: Sequence[Description], launcher: Description) -> list[IPv4Network]:
    """Where hosts share no network (clouds give each host one of its own): those our ssh went through.

    [] when a host does not say where ssh reached it.
    """
    found: list[IPv4Network] = []
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
    names: Sequence[str], hosts: Mapping[str, Description], networks: Sequence[IPv4Network]
) -> dict[str, list[IPv4Address]]:
    """host -> the addresses of the next host in these networks, which it must reach."""
    pairs = zip(names, [*names[1:], *names[:1]], strict=True)
    return {
        name: sorted(
            address.ip for _, address in hosts[other].addresses if any(address.ip in n for n in networks)
        )
        for name, other in pairs
        if name != other
    }


def reachable(
    networks: Sequence[IPv4Network], unreached: Mapping[str, Sequence[IPv4Address]]
) -> list[IPv4Network]:
    """The networks in which every host reached the next one."""
    missed = [address for addresses in unreached.values() for address in addresses]
    return [network for network in networks if not any(address in network for address in missed)]


def fastest(hosts: Sequence[Description], networks: Sequence[IPv4Network]) -> list[IPv4Network]:
    """Without the networks that are known to be slower than another: ranks would load them all alike."""

    def speed(network: IPv4Network) -> int:
        return min(
            max((host.speeds.get(name, 0) for name in host.interfaces_in([network])), default=0)
            for host in hosts
        )

    best = max(map(speed, networks), default=0)
    return [network for network in networks if speed(network) in (0, best)]


def choice(
    hosts: Sequence[Description], networks: Sequence[IPv4Network], daemon_networks: Sequence[IPv4Network]
) -> Choice:
    """The choice in the forms in which it is passed on."""
    names = [host.interfaces_in(networks) for host in hosts]
    everywhere = [name for name in (names[0] if names else []) if all(name in other for other in names)]
    return Choice(
        tuple(map(str, networks)),
        tuple(map(str, daemon_networks)),
        tuple(sorted({name for own in names for name in own})),
        everywhere[0] if everywhere else "",
    )
