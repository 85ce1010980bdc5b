"""`horovodrun --ddp`: what ranks of torch.distributed are told, and where they meet."""

import os
import socket
import sys
from importlib.metadata import EntryPoint
from ipaddress import IPv4Interface
from pathlib import Path

import pytest
from horovod.runner.remote_hosts import Prepared
from refusals import refused

from horovod.common.launched import LOCAL_RANKS
from horovod.common.networks import Choice, Description
from horovod.runner import (
    command_line,
    config_file,
    ddp_rank,
    errors,
    host_agent,
    hosts,
    rendezvous,
    settings,
)
from horovod.runner.hosts import Host
from horovod.runner.job_hosts import JobHosts
from horovod.runner.shell import Ssh


def described(**interfaces: str) -> Description:
    return Description(tuple((name, IPv4Interface(address)) for name, address in interfaces.items()))


FIRST = described(lo="127.0.0.1/8", ens3="192.168.0.1/24", ib0="10.0.0.1/8")
SECOND = described(lo="127.0.0.1/8", eno1="192.168.0.2/24", ib1="10.0.0.2/8")


@pytest.fixture
def two_hosts(monkeypatch: pytest.MonkeyPatch) -> JobHosts:
    """This machine is neither; a port is always found."""
    monkeypatch.setattr(hosts.socket, "getaddrinfo", lambda *_, **__: [])
    hosts.is_local.cache_clear()
    monkeypatch.setattr(rendezvous.preflight, "free_port", lambda host, wanted, shell: wanted or 12345)
    return JobHosts(3, (Host("node1", 2), Host("node2", 1)), Ssh())


def test_a_rank_is_told_its_place_as_by_torchrun() -> None:
    expected = [("0", "2", "0"), ("1", "2", "0"), ("0", "1", "1")]
    for rank, (local, of, group) in enumerate(expected):
        told = ddp_rank.position_of("2:eth0/1:ib0,ib1", rank, int(local), int(of))
        assert told == {
            "RANK": str(rank),
            "ROLE_RANK": str(rank),
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": of,
            "GROUP_RANK": group,
            "NODE_RANK": group,
            "GLOO_SOCKET_IFNAME": "eth0" if group == "0" else "ib0,ib1",
        }
    assert "GLOO_SOCKET_IFNAME" not in ddp_rank.position_of("2:", 1, 1, 2)


def test_another_order_than_torchruns_is_refused() -> None:
    with refused(errors.other_order, rank=1, local_rank=0, local_size=2, expected=1, slots=2):
        ddp_rank.position_of("2:/2:", 1, 0, 2)


def test_every_host_is_told_its_own_interfaces(two_hosts: JobHosts) -> None:
    ways = Choice(("10.0.0.0/8", "192.168.0.0/24"), interfaces=("eno1", "ens3", "ib0", "ib1"))
    meeting = rendezvous.of({}, two_hosts, Prepared(ways, descriptions=(FIRST, SECOND)))
    assert meeting == rendezvous.Rendezvous("10.0.0.1", 12345, ((2, ("ib0", "ens3")), (1, ("ib1", "eno1"))))
    assert meeting.start_words()[-1] == "2:ib0,ens3/1:ib1,eno1"
    told = meeting.variables("id")
    assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("10.0.0.1", "12345")
    assert (told["WORLD_SIZE"], told["GROUP_WORLD_SIZE"]) == ("3", "2")


def test_networks_by_name_and_what_the_user_says_of_the_meeting(two_hosts: JobHosts) -> None:
    named = Prepared(Choice(("ens3", "eno1")), descriptions=(FIRST, SECOND))
    meeting = rendezvous.of({"master_port": 29500}, two_hosts, named)
    assert (meeting.address, meeting.port) == ("192.168.0.1", 29500)
    assert meeting.hosts == ((2, ("ens3",)), (1, ("eno1",)))
    assert rendezvous.of({"master_addr": "gate"}, two_hosts, named).address == "gate"


def test_hosts_that_nobody_asked_go_by_their_names(two_hosts: JobHosts) -> None:
    """Another way than ssh starts the ranks: Kubernetes' MPIJob, for one."""
    unasked = JobHosts(3, two_hosts.hosts, None)
    meeting = rendezvous.of({}, unasked, Prepared(Choice(("eth0",), interfaces=("eth0",))))
    assert meeting.address == "node1" and 10_000 <= meeting.port <= 65535
    assert meeting.hosts == ((2, ("eth0",)), (1, ("eth0",)))


def test_ranks_of_one_host_meet_at_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    here = JobHosts(2, (Host("localhost", 2),))
    meeting = rendezvous.of({}, here, Prepared(Choice()))
    assert (meeting.address, meeting.hosts) == ("127.0.0.1", ((2, ()),))
    monkeypatch.setattr(host_agent, "free_port", lambda wanted: 0)
    with refused(errors.no_free_port, host="localhost"):
        rendezvous.of({}, here, Prepared(Choice()))


def test_a_port_that_is_taken() -> None:
    here = JobHosts(2, (Host("localhost", 2),))
    with socket.create_server(("", 0)) as server:
        taken = server.getsockname()[1]
        with refused(errors.port_in_use, port=taken, host="localhost"):
            rendezvous.of({"master_port": taken}, here, Prepared(Choice()))
    assert rendezvous.of({"master_port": taken}, here, Prepared(Choice())).port == taken
    with refused(errors.wrong_value, option="--master-port", value=70000):
        rendezvous.of({"master_port": 70000}, here, Prepared(Choice()))


def test_free_ports_are_none_that_connections_get() -> None:
    range_of_connections = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if not range_of_connections.exists():
        pytest.skip("this system does not say which ports connections get")
    first = int(range_of_connections.read_text().split()[0])
    if first <= 20_000:
        pytest.skip("connections get nearly all ports here")
    found = [host_agent.free_port() for _ in range(5)]
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
    values, warnings = config_file.load(str(path))
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
            rendezvous.refuse_without_ddp(given, given)
        rendezvous.refuse_without_ddp({**given, "ddp": True}, {**given, "ddp": True})


def become(monkeypatch: pytest.MonkeyPatch, hosts: str, **environment: str) -> dict[str, str]:
    """The environment with which a rank of these hosts becomes its command, of this environment."""
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "environ", dict(environment))
    monkeypatch.setattr(os, "execvpe", lambda *what: became.append(what))
    monkeypatch.setattr(sys, "path", list(sys.path))
    ddp_rank.main(hosts, ["python", "train.py"])
    ((file, words, its),) = became
    assert (file, words) == ("python", ["python", "train.py"])
    return its


def test_a_rank_becomes_its_command_and_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    placed = {
        "OMPI_COMM_WORLD_RANK": "2",
        "OMPI_COMM_WORLD_LOCAL_RANK": "1",
        "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    }
    its = become(monkeypatch, "1:eth0/2:ib0", **placed, MASTER_ADDR="gate", RANK="9")
    assert {
        **placed,
        "MASTER_ADDR": "gate",
        "RANK": "2",
        "LOCAL_RANK": "1",
        "GROUP_RANK": "1",
    }.items() <= its.items()
    assert (its["GLOO_SOCKET_IFNAME"], its["OMP_NUM_THREADS"]) == ("ib0", "1")
    its = become(monkeypatch, "1:eth0/2:ib0", **placed, GLOO_SOCKET_IFNAME="mine", OMP_NUM_THREADS="4")
    assert (its["GLOO_SOCKET_IFNAME"], its["OMP_NUM_THREADS"]) == ("mine", "4")  # the user's word counts
    alone = {name: value.replace("2", "1") for name, value in placed.items()} | {
        "OMPI_COMM_WORLD_LOCAL_RANK": "0"
    }
    assert "OMP_NUM_THREADS" not in become(monkeypatch, "1:/1:", **alone)


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PMI_RANK": "0"}, errors.no_local_ranks(variables=list(LOCAL_RANKS))),
        (
            {"PMI_RANK": "0", "MPI_LOCALRANKID": "1"},
            errors.other_order(rank=0, local_rank=1, local_size=0, expected=0, slots=1),
        ),
    ],
)
def test_a_rank_that_cannot_know_its_place_says_so(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], said: ValueError
) -> None:
    with pytest.raises(SystemExit) as ended:
        become(monkeypatch, "1:", **environment)
    assert ended.value.code == f"horovodrun --ddp: {said}"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (FileNotFoundError(2, "No such file"), 127, "No such file (PATH is /bin)"),
        (PermissionError(13, "Permission denied"), 126, "Permission denied"),
    ],
)
def test_a_command_that_cannot_be_started_is_named_with_a_shells_code(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: OSError, code: int, said: str
) -> None:
    def refuse(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "execvpe", refuse)
    placed = {"PMI_RANK": "0", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "1", "PATH": "/bin"}
    monkeypatch.setattr(os, "environ", placed)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(SystemExit) as ended:
        ddp_rank.main("1:", ["python"])
    assert ended.value.code == code
    assert capsys.readouterr().err == f"horovodrun --ddp: the command python cannot be started: {said}\n"
