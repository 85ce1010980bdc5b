"""horovodrun --topology over two hosts with cables of 1 Gbit/s, and the environment table of both hosts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from rig import NET, Cluster, why_not

from horovod.lab.environment import from_json

COLLECT = "from horovod.lab.environment import *; print(to_json(collect(['-np', '2', '-H', 't1:1,t2:1'])))"


@pytest.fixture(scope="module")
def two_hosts() -> Iterator[Cluster]:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    cluster = Cluster(2, rate="1gbit")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.mark.timeout(100)
def test_hosts_addresses_and_speed(two_hosts: Cluster) -> None:
    done = two_hosts.horovodrun("--topology", "-np", "4", "-H", "t1:2,t2:2", PYTHONIOENCODING="utf-8")
    assert done.returncode == 0, done.stderr
    for number, ranks in ((1, "0-1"), (2, "2-3")):
        assert re.search(rf"┌─ t{number} ─+ ranks {ranks} ─┐", done.stdout)
        assert f"eth0: speed unknown, {NET}.{number}/24" in done.stdout  # not the machine's own eth0
    assert f"network {NET}.0/24: t1 eth0, t2 eth0" in done.stdout
    assert "Links between 4 ranks (measured when the job started):" in done.stdout
    network = re.search(
        r"  network  ([\d.]+) ([GM])bit/s in each direction; another host notices after (\d+) us", done.stdout
    )
    large = re.search(r" 100 MB  none +(\w+ \w+) +(\d+) ms ", done.stdout)
    assert network is not None and large is not None, done.stdout
    assert large[1].startswith("hierarchical")  # the bytes cross the cable once, also on a slow machine
    bits_per_millisecond = float(network[1]) * {"G": 1e6, "M": 1e3}[network[2]]
    latency = int(network[3]) / 1000
    assert float(large[2]) == pytest.approx(8e8 / bits_per_millisecond, rel=0.02, abs=3 * latency + 1)


@pytest.mark.timeout(100)
def test_environment_of_both(two_hosts: Cluster) -> None:
    done = two_hosts.run("t1", [sys.executable, "-c", COLLECT])
    assert done.returncode == 0, done.stderr
    found = from_json(done.stdout)
    assert [host.name for host in found.hosts] == ["t1", "t2"]
    assert found.value("hardware", "servers") == "2 (t1, t2)"
    assert [host.nics[0].addresses for host in found.hosts] == [(f"{NET}.1/24",), (f"{NET}.2/24",)]


@pytest.mark.timeout(100)
def test_a_host_that_is_not_there(two_hosts: Cluster) -> None:
    done = two_hosts.horovodrun("--topology", "-H", "t1,t9")
    assert done.returncode == 1 and "t9 (unknown host name)" in done.stderr
