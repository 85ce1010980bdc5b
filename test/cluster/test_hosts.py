"""horovodrun and horovod.run over real ssh, on hosts made of namespaces."""

import re
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import busy
import pytest
from rig import NET, Cluster

TWO = ("-np", "3", "-H", "t1:1,t2:2")
SUM = """
import os, torch, horovod.torch as hvd
hvd.init()
x = hvd.allreduce(torch.full((100_000,), float(hvd.rank() + 1)), op=hvd.Sum, name="x")
print("rank", hvd.rank(), "of", hvd.size(), "on", os.uname().nodename, "sum", x[0].item(), x[-1].item())
hvd.shutdown()
"""


def lines(text: str) -> list[str]:
    return sorted(text.splitlines())


@pytest.mark.quick
def test_a_job_on_two_hosts(cluster: Cluster) -> None:
    result = cluster.horovodrun(*TWO, "--verbose", sys.executable, "-c", SUM)
    assert result.returncode == 0, result.stderr
    assert lines(result.stdout) == [
        f"[{rank}]<stdout>:rank {rank} of 3 on {host} sum 6.0 6.0"
        for rank, host in enumerate(("t1", "t2", "t2"))
    ]
    begins, *_ = result.stderr.splitlines()
    assert begins.startswith("horovodrun: agents start 3 ranks on t1:1, t2:2, each of which runs ")
    assert cluster.files_left() == []


def test_a_job_on_other_hosts_only(cluster: Cluster, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("t2 slots=1\nt3 slots=1\n")
    command = ["sh", "-c", "echo $(uname -n) $NCCL_SOCKET_IFNAME"]
    result = cluster.horovodrun("-np", "2", "--hostfile", str(hostfile), *command)
    assert (result.returncode, lines(result.stdout)) == (
        0,
        ["[0]<stdout>:t2 eth0", "[1]<stdout>:t3 eth0"],
    ), result.stderr


FUNCTION = """
import os, sys, horovod
data = os.urandom(8_000_000)
def work(factor, *, shift=0):
    rank = int(os.environ["HOROVOD_RANK"])
    return os.uname().nodename, rank * factor + shift, data[rank:]
results = horovod.run(work, (10,), {"shift": 1}, num_proc=3, hosts="t1:1,t2:2")
assert [result[:2] for result in results] == [("t1", 1), ("t2", 11), ("t2", 21)], results
assert all(result[2] == data[rank:] for rank, result in enumerate(results))
def fail():
    import torch, horovod.torch as hvd
    hvd.init()
    if hvd.rank() == 1:
        raise ValueError("not on " + os.uname().nodename)
    hvd.allreduce(torch.ones(1), name="x")
try:
    horovod.run(fail, num_proc=3, hosts="t1:1,t2:2")
except RuntimeError as error:
    print(error)
"""


@pytest.mark.quick
def test_a_function_on_two_hosts(cluster: Cluster) -> None:
    result = cluster.run("t1", [sys.executable, "-c", FUNCTION])
    assert result.returncode == 0, result.stderr
    assert (
        "rank 1 exited with non-zero status 1, as its function raised ValueError: not on t2" in result.stdout
    )
    assert cluster.files_left() == []


def test_a_function_needs_no_folder_on_other_hosts(cluster: Cluster) -> None:
    """TMPDIR is a separate folder on each host, so a file in it is on the first host only."""
    call = "import horovod, os; print(horovod.run(os.getcwd, num_proc=2, hosts='t1:1,t2:1'))"
    script = f'mkdir "$TMPDIR/only" && cd "$TMPDIR/only" && "$0" -c "{call}"; cd /; rmdir "$TMPDIR/only"'
    result = cluster.run("t1", ["sh", "-c", script, sys.executable])
    assert "/only', '/" in result.stdout, result.stderr
    refused = cluster.run(
        "t1",
        [
            "sh",
            "-c",
            script.replace(f'-c "{call}"', "-m horovod.runner -np 2 -H t1:1,t2:1 pwd"),
            sys.executable,
        ],
    )
    assert "rank 1 on host t2 could not run: the directory" in refused.stderr


def test_hosts_that_cannot_be_reached_are_named(cluster: Cluster) -> None:
    cluster.break_("kill", "t2")
    cluster.break_("unlink", "t3")
    started = time.monotonic()
    result = cluster.horovodrun("-np", "4", "-H", "t1:1,t2:1,t3:1,t9:1", "hostname")
    assert result.returncode == 2 and result.stdout == ""
    (said,) = result.stderr.splitlines()
    assert said.startswith("horovodrun: 3 of 3 remote hosts cannot take part, asked by ssh port 22: ")
    assert "t2 (connection refused: no ssh server listens there)" in said
    assert re.search(r"t3 \((no route to the host|timed out): ", said) and "t9 (unknown host name)" in said
    assert time.monotonic() - started < busy.patience(40)


@pytest.mark.quick
def test_a_host_without_our_python_is_named(cluster: Cluster) -> None:
    """TMPDIR is a separate folder on each host."""
    code = """
import os, sys
link = os.environ["TMPDIR"] + "/python"
os.symlink(sys.executable, link)
sys.executable = link
from horovod.runner.launch import main
code = main(["-np", "2", "-H", "t1:1,t2:1", "hostname"])
os.unlink(link)
sys.exit(code)
"""
    result = cluster.run("t1", [sys.executable, "-c", code])
    assert result.returncode == 2
    assert re.search(r"t2 \(it has no \S+/python: install the same environment", result.stderr)


@pytest.mark.quick
def test_a_host_that_lets_nobody_in_is_named(cluster: Cluster, tmp_path: Path) -> None:
    key = tmp_path / "key"
    cluster.run("t1", ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    only = f"Host *\n IdentityFile {key}\n IdentitiesOnly yes\n BatchMode yes\n"
    config = cluster.made.login.user_folder / "config"
    before = config.read_text()
    try:
        config.write_text(only)
        result = cluster.horovodrun("-np", "2", "-H", "t1:1,t2:1", "hostname")
        config.write_text(f"{only} UserKnownHostsFile /dev/null\n")
        unknown = cluster.horovodrun("-np", "2", "-H", "t1:1,t2:1", "hostname")
    finally:
        config.write_text(before)
    assert "t2 (ssh may not log in without a password: see `ssh-copy-id t2`)" in result.stderr
    assert "t2 (its host key is not known here: type `ssh t2` once)" in unknown.stderr


def test_nothing_is_remembered_of_hosts(cluster: Cluster) -> None:
    """The hosts are checked each time, with or without Horovod's option."""
    assert cluster.horovodrun(*TWO, "--disable-cache", "true").returncode == 0
    assert cluster.horovodrun(*TWO, "true").returncode == 0
    assert not (Path(cluster.home) / ".horovod").exists()
    cluster.break_("kill", "t2")
    assert "t2 (connection refused" in cluster.horovodrun(*TWO, "true").stderr


def test_a_host_that_is_lost_ends_the_job(cluster: Cluster) -> None:
    words = [sys.executable, "-m", "horovod.runner", *TWO, "sh", "-c", "echo up; sleep 300"]
    process = cluster.start("t1", words)
    assert process.stdout is not None
    for _ in range(3):
        assert process.stdout.readline().endswith("up\n")
    cluster.break_("cut", "t2")
    cut = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0 and time.monotonic() - cut < busy.patience(30)
    said = "ranks 1, 2 on host t2 were lost: that host, or the network to it, has failed"
    assert err.endswith(f"horovodrun: {said}; the other ranks were ended\n")


@pytest.fixture
def more_networks(cluster: Cluster) -> Iterator[Cluster]:
    """t1 and t2 have three more networks: a cable, a bridge as for containers, and one without a peer."""
    cluster.network("t1", f"link add eth1 type veth peer name eth1 netns {cluster.made.namespace('t2')}")
    for number in (1, 2):
        host = f"t{number}"
        cluster.network(host, "link add docker0 type bridge")
        cluster.network(host, "link add lost0 type veth peer name lost1")
        cluster.network(host, "addr add 172.17.0.1/16 dev docker0")
        cluster.network(host, f"addr add 10.250.9.{number}/24 dev lost0")
        cluster.network(host, f"addr add 10.250.8.{number}/24 dev eth1")
        for name in ("docker0", "lost0", "lost1", "eth1"):
            cluster.network(host, f"link set {name} up")
    for host, name in product(("t1", "t2"), ("lost0", "eth1")):
        while " UP " not in cluster.network(host, f"-br link show {name}"):
            time.sleep(0.1)
    yield cluster
    for host, name in product(("t1", "t2"), ("docker0", "lost0")):
        cluster.network(host, f"link del {name}")
    cluster.network("t1", "link del eth1")


def test_networks_that_connect_the_hosts_are_chosen(more_networks: Cluster) -> None:
    told = ("sh", "-c", "echo $HOROVOD_TCP_INTERFACES $NCCL_SOCKET_IFNAME")
    result = more_networks.horovodrun(*TWO, *told)
    chosen = f"{NET}.0/24,10.250.8.0/24 eth0,eth1"
    assert lines(result.stdout) == [f"[{rank}]<stdout>:{chosen}" for rank in range(3)], result.stderr
    assert more_networks.horovodrun(*TWO, sys.executable, "-c", SUM).returncode == 0
    named = more_networks.horovodrun(*TWO, "--network-interfaces", "eth1,eth0", *told)
    assert lines(named.stdout) == [f"[{rank}]<stdout>:eth1,eth0 eth1,eth0" for rank in range(3)], named.stderr
