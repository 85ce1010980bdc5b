"""The addresses on which ranks listen: a pure function of the facts that all ranks report."""

# private: _known: speeds that no interface here has

from __future__ import annotations

import socket
from ipaddress import ip_address, ip_interface
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from refusals import refused

from horovod.common import errors, networks
from horovod.common.rendezvous.card import Card
from horovod.common.rendezvous.meeting import listening_addresses

LO, LO6 = ("lo", "127.0.0.1/8", 0), ("lo", "::1/128", 0)
DOCKER = ("docker0", "172.17.0.1/16", 10000)  # the same address on every host


def card(
    host: str, *ends: tuple[str, str, int], route: str = "", wanted: tuple[str, ...] = (), shm: str = ""
) -> Card:
    return Card(
        host=f"{host} {shm}",
        namespace=host,
        name=f"{host}, process 7",
        addresses=tuple((name, ip_interface(at), speed) for name, at, speed in ends),
        route=ip_address(route) if route else None,
        wanted=wanted,
        nonce=bytes(32),
        has_secret=False,
    )


def eth(number: int, speed: int = 0) -> tuple[str, str, int]:
    return "eth0", f"10.0.0.{number}/24", speed


def ib(number: int, speed: int = 0) -> tuple[str, str, int]:
    return "ib0", f"192.168.5.{number}/24", speed


def test_one_host() -> None:
    a = card("a", LO6, LO, eth(1), wanted=("eth0",))
    assert listening_addresses([a, a, a]) == [["127.0.0.1"]] * 3
    assert listening_addresses([card("a", LO6, eth(1))] * 2) == [["::1"]] * 2
    assert listening_addresses([card("a", eth(1), route="10.0.0.1")] * 2) == [["10.0.0.1"]] * 2, "lo is down"


def test_containers_of_one_network_that_share_no_memory() -> None:
    both = [card("a", LO, eth(1), shm=shm) for shm in "12"]
    assert listening_addresses(both) == [["127.0.0.1"]] * 2


def test_the_network_that_all_share() -> None:
    a, b = (
        card("a", LO, DOCKER, ("eth0", "10.0.0.1/24", 0)),
        card("b", LO, ("ens3", "10.0.0.2/24", 0), DOCKER),
    )
    assert listening_addresses([a, a, b, b]) == [["10.0.0.1"]] * 2 + [["10.0.0.2"]] * 2
    c = card("c", LO, ("eth1", "10.0.0.3/24", 0), ("virbr0", "192.168.122.1/24", 0))
    assert listening_addresses([a, b, c])[2] == ["10.0.0.3"]


def test_the_fastest_of_them() -> None:
    hosts = [card(name, eth(n, 1000), ib(n, 100_000), route=f"10.0.0.{n}") for n, name in enumerate("ab", 1)]
    assert listening_addresses(hosts) == [["192.168.5.1"], ["192.168.5.2"]], "though they met in the other"
    slow = card("c", eth(3, 1000), ib(3, 1000), route="10.0.0.3")
    assert listening_addresses([*hosts, slow])[0] == ["10.0.0.1"], "as fast as the slowest host"


def test_of_equals_that_in_which_they_met() -> None:
    for speed in (0, 1000):
        hosts = [card(n, eth(i, speed), ib(i, speed), route=f"192.168.5.{i}") for i, n in enumerate("ab", 1)]
        assert listening_addresses(hosts) == [["192.168.5.1"], ["192.168.5.2"]]
        unmet = [card(n, eth(i, speed), ib(i, speed)) for i, n in enumerate("ab", 1)]
        assert listening_addresses(unmet)[0] == ["10.0.0.1"]
    unknown = [card(n, eth(i, 0), ib(i, 1000), route=f"10.0.0.{i}") for i, n in enumerate("ab", 1)]
    assert listening_addresses(unknown)[0] == ["10.0.0.1"], "whose speed nobody knows, and that works"


def test_ipv6() -> None:
    a = card("a", LO, ("eth0", "fd00::1/64", 0), ("eth0", "fe80::1/64", 0), DOCKER)
    b = card("b", LO, ("eth0", "fe80::2/64", 0), ("eth0", "fd00::2/64", 0), DOCKER)
    assert listening_addresses([a, b]) == [["fd00::1"], ["fd00::2"]]
    both = [card(n, ("e", f"fd00::{i}/64", 0), ("e", f"10.0.0.{i}/24", 0)) for i, n in enumerate("ab", 1)]
    assert listening_addresses(both)[0] == ["fd00::1"], "the first host's order"
    met = [card(n, *[(e, str(at), s) for e, at, s in each.addresses], route=f"10.0.0.{i}")
           for i, (n, each) in enumerate(zip("ab", both, strict=True), 1)]  # fmt: skip
    assert listening_addresses(met)[0] == ["10.0.0.1"]


def test_several_addresses_in_one_network() -> None:
    a = card("a", ("eth0", "10.0.0.9/24", 0), ("eth0", "10.0.0.5/24", 0))
    assert listening_addresses([a, card("b", eth(2))]) == [["10.0.0.5"], ["10.0.0.2"]]


def test_hosts_in_networks_of_their_own() -> None:
    """As in clouds: by the default route, or by the route to MASTER_ADDR."""
    a = card("a", LO, ("eth0", "10.1.0.5/32", 0), DOCKER, route="10.1.0.5")
    b = card("b", LO, ("ens4", "10.2.0.6/32", 0), DOCKER, route="10.2.0.6")
    assert listening_addresses([a, b]) == [["10.1.0.5"], ["10.2.0.6"]]
    lost = card("c", LO, DOCKER)
    with refused(errors.no_address, ranks=(2,), host="c, process 7"):
        listening_addresses([a, b, lost])


def test_as_each_was_told() -> None:
    a = card("a", LO, eth(1), ib(1), wanted=("ib0",))
    b = card("b", LO, eth(2), ib(2), ("ens1", "fd00::2/64", 0), wanted=("192.168.0.0/16", "fd00::/8"))
    c = card("c", LO, eth(3), ib(3))
    assert listening_addresses([a, b, c]) == [["192.168.5.1"], ["192.168.5.2", "fd00::2"], ["10.0.0.3"]]
    lost = card("b", LO, ("eth0", "fe80::2/64", 0), ("eth1", "10.0.0.2/24", 0), wanted=("eth0", "lo"))
    facts = {"host": "b, process 7", "wanted": ["eth0", "lo"], "addresses": ["eth1 10.0.0.2/24"]}
    with refused(errors.no_address_as_told, ranks=(1,), **facts):
        listening_addresses([a, lost])


def test_addresses_of_this_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(family: int, address: str, netmask: str | None) -> Any:
        return SimpleNamespace(family=family, address=address, netmask=netmask)

    found = {
        "eth0": [
            entry(socket.AF_INET, "10.0.0.1", "255.255.255.0"),
            entry(socket.AF_INET6, "fd00::1", "ffff:ffff:ffff:ffff::"),
            entry(socket.AF_INET6, "fe80::1%eth0", "ffff:ffff:ffff:ffff::"),
            entry(17, "02:00:00:00:00:01", None),
        ],
        "eth1": [entry(socket.AF_INET, "10.1.0.1", "255.255.255.0")],
        "gone": [entry(socket.AF_INET, "10.2.0.1", "255.255.255.0")],
    }
    states = {"eth0": SimpleNamespace(isup=True, speed=1000), "eth1": SimpleNamespace(isup=False, speed=0)}
    unknown = (-1, 0, 65535, 2**32 - 1)
    assert [networks._known(speed) for speed in (*unknown, 100, 400_000)] == [0] * 4 + [100, 400_000]
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: found)
    monkeypatch.setattr(psutil, "net_if_stats", lambda: states)
    assert networks.addresses() == [
        ("eth0", ip_interface("10.0.0.1/24"), 1000),
        ("eth0", ip_interface("fd00::1/64"), 1000),
        ("eth0", ip_interface("fe80::1/64"), 1000),
    ]


def test_the_address_towards_another_host() -> None:
    by_default = networks.address_towards("")
    assert by_default is None or not by_default.is_loopback
    for name in ("127.0.0.1", "localhost", "no-such-host.invalid", "x" * 300, "a\0b", "."):
        assert networks.address_towards(name) == by_default
    if by_default is not None:
        assert networks.address_towards(str(by_default)) == by_default
