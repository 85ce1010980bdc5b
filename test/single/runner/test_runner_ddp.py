"""`horovodrun --ddp`: the environment of torch.distributed's ranks, and their meeting place."""

import socket
from importlib.metadata import EntryPoint
from ipaddress import IPv4Interface
from pathlib import Path

import pytest
from refusals import refused

from horovod.common.networks import Choice, Description
from horovod.runner import command_line, errors, hosts, mistakes, rendezvous, settings
from horovod.runner.agents import host_facts
from horovod.runner.agents.preparation import Prepared
from horovod.runner.hosts import Host
from horovod.runner.job_hosts import JobHosts
from horovod.runner.rendezvous import Rendezvous
from horovod.runner.shell import Ssh


def described(**interfaces: str) -> Description:
    return Description(tuple((name, IPv4Interface(address)) for name, address in interfaces.items()))


FIRST = described(lo="127.0.0.1/8", ens3="192.168.0.1/24", ib0="10.0.0.1/8")
SECOND = described(lo="127.0.0.1/8", eno1="192.168.0.2/24", ib1="10.0.0.2/8")


def found_port(host: str | None, wanted: int) -> int:
    """Replaces the search for a free port, on any host."""
    return wanted or 12345


def port_here(host: str | None, wanted: int) -> int:
    assert host is None
    return host_facts.free_port(wanted)


@pytest.fixture
def two_hosts(monkeypatch: pytest.MonkeyPatch) -> JobHosts:
    """The master's host is not this machine."""
    monkeypatch.setattr(hosts.socket, "getaddrinfo", lambda *_, **__: [])
    hosts.is_local.cache_clear()
    return JobHosts(3, (Host("node1", 2), Host("node2", 1)), Ssh())


def prepared(*networks: str) -> Prepared:
    return Prepared(Choice(networks, interfaces=networks), descriptions={"node1": FIRST, "node2": SECOND})


HERE = JobHosts(2, (Host("localhost", 2),))


def test_a_rank_is_told_its_place_as_by_torchrun() -> None:
    meeting = Rendezvous("10.0.0.1", 80, ((2, ("eth0",)), (1, ("ib0", "ib1")), (1, ())))
    told = meeting.variables_of_ranks({})
    expected = [("0", "2", "0"), ("1", "2", "0"), ("0", "1", "1"), ("0", "1", "2")]
    for rank, (local, of, group) in enumerate(expected):
        usual = {"GLOO_SOCKET_IFNAME": ("eth0", "ib0,ib1", "")[int(group)], "OMP_NUM_THREADS": "1"}
        usual = {name: text for name, text in usual.items() if text and (name[0] == "G" or of == "2")}
        assert told[rank] == {
            "RANK": str(rank),
            "ROLE_RANK": str(rank),
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": of,
            "GROUP_RANK": group,
            "NODE_RANK": group,
            **usual,
        }
    mine = {"GLOO_SOCKET_IFNAME": "mine", "OMP_NUM_THREADS": "4"}
    assert not mine.keys() & meeting.variables_of_ranks(mine)[0].keys(), "the user's word counts"


def test_every_host_is_told_its_own_interfaces(two_hosts: JobHosts) -> None:
    meeting = rendezvous.of({}, two_hosts, prepared("10.0.0.0/8", "192.168.0.0/24"), found_port)
    assert meeting == Rendezvous("10.0.0.1", 12345, ((2, ("ib0", "ens3")), (1, ("ib1", "eno1"))))
    told = meeting.variables("id")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "12345")
    assert (told["WORLD_SIZE"], told["GROUP_WORLD_SIZE"]) == ("3", "2")
    assert told["TORCHELASTIC_RUN_ID"] == "id"


def test_networks_by_name_and_what_the_user_says_of_the_meeting(two_hosts: JobHosts) -> None:
    named = prepared("ens3", "eno1")
    meeting = rendezvous.of({"master_port": 29500}, two_hosts, named, found_port)
    assert (meeting.address, meeting.port) == ("192.168.0.1", 29500)
    assert meeting.hosts == ((2, ("ens3",)), (1, ("eno1",)))
    assert rendezvous.of({"master_addr": "gate"}, two_hosts, named, found_port).address == "gate"


def test_hosts_without_a_network_that_was_chosen_go_by_their_names(two_hosts: JobHosts) -> None:
    meeting = rendezvous.of({}, two_hosts, prepared(), found_port)
    assert (meeting.address, meeting.hosts) == ("node1", ((2, ()), (1, ())))


def test_the_port_is_looked_for_on_rank_0s_host(two_hosts: JobHosts) -> None:
    asked: list[tuple[str | None, int]] = []

    def no_port(host: str | None, wanted: int) -> int:
        asked.append((host, wanted))
        return 0

    with refused(errors.no_free_port, host="node1"):
        rendezvous.of({}, two_hosts, prepared(), no_port)
    with refused(errors.port_in_use, port=80, host="node1"):
        rendezvous.of({"master_port": 80}, two_hosts, prepared(), no_port)
    with refused(errors.no_free_port, host="localhost"):
        rendezvous.of({}, HERE, Prepared(Choice()), no_port)
    assert asked == [("node1", 0), ("node1", 80), (None, 0)]


def test_ranks_of_one_host_meet_at_loopback() -> None:
    meeting = rendezvous.of({}, HERE, Prepared(Choice()), port_here)
    assert (meeting.address, meeting.hosts) == ("127.0.0.1", ((2, ()),))
    named = Prepared(Choice(("eth0",), interfaces=("eth0",)))
    assert rendezvous.of({}, HERE, named, port_here).hosts == ((2, ("eth0",)),), "as the user has it"


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("", 0)) as server:
        taken = server.getsockname()[1]
        with refused(errors.port_in_use, port=taken, host="localhost"):
            rendezvous.of({"master_port": taken}, HERE, Prepared(Choice()), port_here)
    assert rendezvous.of({"master_port": taken}, HERE, Prepared(Choice()), port_here).port == taken
    with refused(errors.wrong_value, option="--master-port", value=70000):
        rendezvous.of({"master_port": 70000}, HERE, Prepared(Choice()), port_here)


def test_free_ports_are_none_that_connections_get() -> None:
    range_of_connections = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not range_of_connections.exists():
        pytest.skip("this system does not say which ports connections get")
    first = int(range_of_connections.read_text().split()[0])
    if first <= 20_000:
        pytest.skip("connections get nearly all ports here")
    found = [host_facts.free_port() for _ in range(5)]
    assert all(10_000 <= port < first for port in found) and len(set(found)) > 1


def environment(line: str, file: dict | None = None) -> dict[str, str]:
    given, _ = command_line.parse(line.split())
    return settings.rank_environment(settings.merged(given, file or {}, {}))


def test_compression_is_ddps_with_the_flag_only(tmp_path: Path) -> None:
    assert environment("--ddp --compression bit8 ls") == {"HOROVOD_DDP_COMPRESSION": "bit8"}
    assert environment("--compression bit8 ls") == {"HOROVOD_COMPRESSION": "bit8"}
    path = tmp_path / "config.yaml"
    path.write_text(
        "ddp: {enabled: true, master_addr: gate, master_port: 29500}\nparams: {compression: int4}"
    )
    values, warnings = settings.load(str(path))
    assert warnings == []
    assert values == {"ddp": True, "master_addr": "gate", "master_port": 29500, "compression": "int4"}
    assert environment("ls", values) == {"HOROVOD_DDP_COMPRESSION": "int4"}


def test_what_keeps_compression_away(monkeypatch: pytest.MonkeyPatch) -> None:
    def said(**environment: str) -> str:
        return rendezvous.compression_warning(environment)

    wanted = {"HOROVOD_DDP_COMPRESSION": "bit8"}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group=None, **_: [])
    assert said() == said(HOROVOD_DDP_COMPRESSION="none", TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ""
    assert "this installation of horovod does not announce itself to torch" in said(**wanted)
    point = EntryPoint("horovod", "horovod.torch_autoload:load", "torch.backends")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group=None, **_: [point])
    assert said(**wanted) == said(**wanted, TORCH_DEVICE_BACKEND_AUTOLOAD="1") == ""
    assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0 keeps torch" in said(**wanted, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


def test_how_to_meet_without_a_meeting_is_refused() -> None:
    for line in ("--master-port 29500 ls", "--master-addr gate ls"):
        given, _ = command_line.parse(line.split())
        with refused(errors.alone, option=line.split()[0], other="--ddp"):
            mistakes.refuse_without_other(given, given)
        mistakes.refuse_without_other({**given, "ddp": True}, {**given, "ddp": True})
