"""These tests run on made hosts (see `rig`), and are skipped with the reason if the machine allows none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rig import Cluster, why_not

from horovod.made_hosts import MadeHosts

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def hosts_can_be() -> None:
    """Skip a test that makes its hosts itself if none can be made."""
    if reason := why_not():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def cluster_of_three(hosts_can_be: None) -> Iterator[Cluster]:
    cluster = Cluster(3)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


@pytest.fixture
def cluster(cluster_of_three: Cluster, tmp_path: Path) -> Cluster:
    """Three hosts that are up, with a separate home for the files that horovodrun keeps."""
    cluster_of_three.mend()
    cluster_of_three.home = tmp_path
    return cluster_of_three


@pytest.fixture
def made(hosts_can_be: None) -> Iterator[MadeHosts]:
    hosts = MadeHosts(2, name=f"test{os.getpid()}")
    yield hosts
    hosts.down()
