"""The choice of the networks that connect the hosts of a job, as a pure function."""

from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

from horovod.common import networks
from horovod.common.networks import Choice, Description

LOOPBACK = ("lo", "127.0.0.1/8")
DOCKER = ("docker0", "172.17.0.1/16")  # the same address on every host


def host(*addresses: tuple[str, str], at: str = "", came_from: str = "") -> Description:
    return Description(
        tuple((name, IPv4Interface(text)) for name, text in (LOOPBACK, *addresses)),
        IPv4Address(at) if at else None,
        IPv4Address(came_from) if came_from else None,
    )


def shared(*hosts: Description) -> list[str]:
    return [str(network) for network in networks.shared(hosts)]


def test_networks_that_all_hosts_are_in() -> None:
    a = host(("eth0", "10.0.0.1/24"), ("ib0", "192.168.5.1/24"), DOCKER)
    b = host(("ens3", "10.0.0.2/24"), ("ib0", "192.168.5.2/24"), DOCKER)
    c = host(("eth1", "10.0.0.3/24"), DOCKER, ("virbr0", "192.168.122.1/24"))
    assert shared(a, b) == ["10.0.0.0/24", "192.168.5.0/24"]
    assert shared(a, b, c) == ["10.0.0.0/24"]


def test_networks_that_connect_nothing() -> None:
    assert shared(host(DOCKER), host(DOCKER)) == []
    assert shared(host(("e", "169.254.1.1/16")), host(("e", "169.254.1.2/16"))) == []
    assert shared(host(("e", "10.0.0.1/24")), host(("e", "10.0.1.1/24"))) == []
    # two of three hosts have the same address, which is ambiguous
    duplicate = [host(("e", f"10.0.0.{n}/24")) for n in (1, 2, 2)]
    assert shared(*duplicate) == []


def test_hosts_in_networks_of_their_own() -> None:
    """As in clouds: each address is in a separate network, behind a router."""
    launcher = host(("eth0", "10.1.0.5/32"), DOCKER)
    b = host(("ens4", "10.2.0.6/32"), DOCKER, at="10.2.0.6", came_from="10.1.0.5")
    c = host(("ens4", "10.3.0.7/32"), DOCKER, at="10.3.0.7", came_from="10.1.0.5")
    assert networks.shared([launcher, b, c]) == []
    assert list(map(str, networks.routed([launcher, b, c], launcher))) == [
        "10.1.0.5/32",
        "10.2.0.6/32",
        "10.3.0.7/32",
    ]
    assert list(map(str, networks.routed([b, c], launcher))) == ["10.2.0.6/32", "10.3.0.7/32"]
    # a host behind address translation reports an address that none of its interfaces has
    translated = host(("eth0", "192.168.0.2/24"), at="80.1.2.3", came_from="10.1.0.5")
    assert networks.routed([launcher, translated], launcher) == []


def test_every_host_must_reach_the_next() -> None:
    both = [IPv4Network("10.0.0.0/24"), IPv4Network("192.168.5.0/24")]
    hosts = {
        name: host(("e", f"10.0.0.{n}/24"), ("i", f"192.168.5.{n}/24"), DOCKER)
        for n, name in enumerate(("", "b", "c"), 1)
    }
    targets = networks.ring(list(hosts), hosts, both)
    assert {name: list(map(str, to)) for name, to in targets.items()} == {
        "": ["10.0.0.2", "192.168.5.2"],
        "b": ["10.0.0.3", "192.168.5.3"],
        "c": ["10.0.0.1", "192.168.5.1"],
    }
    assert networks.ring(["b"], hosts, both) == {}
    assert networks.reachable(both, {"b": [], "c": []}) == both
    assert networks.reachable(both, {"b": [IPv4Address("192.168.5.3")], "c": []}) == both[:1]


def test_slow_networks_are_left_out() -> None:
    nets = [IPv4Network("10.0.0.0/24"), IPv4Network("192.168.5.0/24"), IPv4Network("10.7.0.0/24")]

    def fastest(*speeds: dict[str, int]) -> list[IPv4Network]:
        hosts = [
            replace(
                host(("e", f"10.0.0.{n}/24"), ("i", f"192.168.5.{n}/24"), ("x", f"10.7.0.{n}/24")), speeds=s
            )
            for n, s in enumerate(speeds, 1)
        ]
        return networks.fastest(hosts, nets)

    assert fastest({"e": 1000, "i": 10000, "x": 0}, {"e": 1000, "i": 10000, "x": 0}) == nets[1:]
    assert fastest({"e": 1000, "i": 10000, "x": 1000}, {"e": 1000, "i": 1000, "x": 1000}) == nets
    assert fastest({}, {}) == nets and networks.fastest([host()], []) == []


def test_the_choice_in_every_form() -> None:
    hosts = [host(("eth0", "10.0.0.1/24"), DOCKER), host(("ens3", "10.0.0.2/24"), DOCKER)]
    ours = [IPv4Network("10.0.0.0/24")]
    assert networks.choice(hosts, ours) == Choice(("10.0.0.0/24",), ("ens3", "eth0"))
    alike = [host(("eth0", f"10.0.0.{n}/24")) for n in (1, 2)]
    assert networks.choice(alike, ours).interfaces == ("eth0",)
    assert networks.choice(alike, []) == Choice()
