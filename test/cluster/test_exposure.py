"""The data of a job on several hosts that others on the network see, and that other users of a host see."""

import secrets
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import NET, Cluster

PROGRAMS = Path(__file__).parent / "host_programs"
RANK = [sys.executable, str(PROGRAMS / "waiting_rank.py")]
TWO = ("-np", "2", "-H", "t1:1,t2:1")
COMMAND_LINES = "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"
ELSEWHERE = "10.250.9.2"  # of t2, on no network of the job


def tokens() -> dict[str, str]:
    """Several, because one may be split across two packets."""
    return {f"TOKEN_{number}": f"secret{secrets.token_hex(20)}" for number in range(10)}


def listening(cluster: Cluster, host: str) -> dict[str, str]:
    """Return port -> address of listening sockets on a host, except sshd's."""
    rows = [line.split()[3] for line in cluster.run(host, ["ss", "-Hltn"]).stdout.splitlines()]
    found = {port: address for address, _, port in (row.rpartition(":") for row in rows)}
    return {port: found[port] for port in sorted(found) if port != "22"}


def answering(cluster: Cluster, host: str, address: str, ports: list[str]) -> list[str]:
    """Return the ports at that address that accept a connection from this host."""
    return cluster.run(host, [sys.executable, str(PROGRAMS / "knock.py"), address, *ports]).stdout.split()


@pytest.fixture
def elsewhere(cluster: Cluster) -> Iterator[Cluster]:
    """t2 has one more network, and t1 has a route to it."""
    cluster.network("t2", "link add other0 type veth peer name other1")
    cluster.network("t2", f"addr add {ELSEWHERE}/24 dev other0")
    for name in ("other0", "other1"):
        cluster.network("t2", f"link set {name} up")
    cluster.network("t1", f"route add {ELSEWHERE}/32 via {NET}.2")
    yield cluster
    cluster.network("t1", f"route del {ELSEWHERE}/32")
    cluster.network("t2", "link del other0")


def test_a_job_on_two_hosts_says_nothing_and_listens_on_its_network_alone(
    elsewhere: Cluster, tmp_path: Path
) -> None:
    cluster, capture, done, mine = elsewhere, tmp_path / "capture", tmp_path / "done", tokens()
    sniffer = cluster.start("t1", [sys.executable, str(PROGRAMS / "sniff.py"), "eth0", str(capture)])
    assert sniffer.stdout is not None and sniffer.stdout.readline() == "listening\n"
    words = [sys.executable, "-m", "horovod.runner", *TWO, *RANK, str(done)]
    job = cluster.start("t1", words, **mine)
    assert job.stdout is not None
    shown = sorted(job.stdout.readline() for _ in range(2))
    lines = "".join(cluster.run(host, ["sh", "-c", COMMAND_LINES]).stdout for host in ("t1", "t2"))
    here, there = listening(cluster, "t1"), listening(cluster, "t2")
    inside = answering(cluster, "t1", f"{NET}.2", [*there])
    outside = answering(cluster, "t1", ELSEWHERE, ["22", *there])
    done.touch()
    err = job.communicate(timeout=60)[1]
    sniffer.send_signal(signal.SIGTERM)
    sniffer.communicate(timeout=20)

    said = " ".join(mine.values())
    assert (job.returncode, shown) == (0, [f"[{rank}]<stdout>:{said}\n" for rank in range(2)]), err
    seen = capture.read_bytes()
    assert b"for all to read" in seen  # a barrier's name, which proves that the capture works
    assert [name for name, token in mine.items() if token.encode() in seen] == []
    assert "agents/agent.py" in lines and "secret" not in lines
    assert {*here.values()} == {f"{NET}.1"} and {*there.values()} == {f"{NET}.2"}
    assert inside == [*there] and outside == ["22"]


def test_a_job_on_one_host_listens_to_no_other(cluster: Cluster, tmp_path: Path) -> None:
    done = tmp_path / "done"
    job = cluster.start("t1", [sys.executable, "-m", "horovod.runner", "-np", "2", *RANK, str(done)])
    assert job.stdout is not None
    shown = [job.stdout.readline() for _ in range(2)]
    found = listening(cluster, "t1")
    answers = answering(cluster, "t2", f"{NET}.1", ["22", *found])
    done.touch()
    err = job.communicate(timeout=60)[1]
    assert job.returncode == 0 and all("<stdout>" in line for line in shown), err
    assert set(found.values()) <= {"127.0.0.1", "[::1]"} and answers == ["22"], found
