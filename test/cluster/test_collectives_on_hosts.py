"""Compressed allreduces and training over cables of 1 Gbit/s: the bytes that cross them, and the results."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from host_programs import steps, sums
from numpy.typing import NDArray
from rig import Cluster

import horovod.torch as hvd
from horovod.common.numpy_codec import named_codec

Array = NDArray[np.float32]
PROGRAMS = Path(__file__).parent / "host_programs"
NAMES = ("none", "bit16", "bit8", "int8", "int4")
COUNT = (1 << 20) + 77  # 4 MiB, and a partial block
PER_CALL = 10_000  # bytes: negotiation and two barriers


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Cluster]:
    cluster.made.rate("1gbit")
    yield cluster
    cluster.made.rate("none")


def run(cluster: Cluster, program: str, local: int, *words: object, limit: float = 200, **more: str) -> None:
    """Run the program on two hosts with `local` ranks each."""
    where = ("-np", str(2 * local), "-H", f"t1:{local},t2:{local}")
    command = [sys.executable, str(PROGRAMS / program), *map(str, words)]
    result = cluster.horovodrun(*where, *command, limit=limit, **more)
    assert result.returncode == 0, result.stderr


def encoded_bytes(name: str) -> int:
    """Return the bytes of the tensor in its format on the wire."""
    return 4 * COUNT if name == "none" else getattr(hvd.Compression, name).codec.encoded_bytes(COUNT)


def expected_sum(name: str, hosts: list[Array]) -> Array:
    """Return the sum of two hosts: each quantises its own sum once; both add the decoded sums in order."""
    if name == "none":
        return reduce(add, hosts)
    codec = named_codec(getattr(hvd.Compression, name).codec.name)
    return reduce(add, (codec.decode(codec.encode(host), COUNT) for host in hosts))


@pytest.mark.parametrize("local", [1, 2])
def test_sums_between_hosts(limited: Cluster, tmp_path: Path, local: int) -> None:
    """Each cable carries the encoded tensor once each way, however many ranks a host has.

    Ranks of a host sum in memory, and each carries its own share of the sum across. A flat ring of 4 ranks
    would send 2 * 3/4 of the float32 tensor from each host: 6 times the bytes of bit8.
    """
    run(limited, "sums.py", local, tmp_path, COUNT, *NAMES)
    ranks = range(2 * local)
    contributions = [sums.contribution(rank, COUNT) for rank in ranks]
    hosts = [reduce(add, contributions[first : first + local]) for first in (0, local)]
    sent = [json.loads((tmp_path / f"sent-{rank}.json").read_text()) for rank in ranks]
    for name in NAMES:
        needed = encoded_bytes(name)
        for host_sent in sent:  # ranks of one host read the same counter
            assert 0.99 * needed < host_sent[name] < 1.05 * needed + PER_CALL, (name, local)
        expected = expected_sum(name, hosts).tobytes()
        for rank in ranks:
            assert np.load(tmp_path / f"{name}-{rank}.npy").tobytes() == expected, (name, rank)
    assert sent[0]["bit8"] < 1.05 * 2 * 3 / 4 * 4 * COUNT / 5.9


def test_a_slow_cable_is_no_silence_and_a_rank_that_stops_is(cluster: Cluster) -> None:
    """A transfer in progress causes no warning, however long it takes; if it stops, the silent rank is named.

    Over MPI: TCP has its own heartbeats.
    """
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "2"}
    words = [
        "--launcher",
        "mpi",
        "-np",
        "2",
        "-H",
        "t1:1,t2:1",
        sys.executable,
        str(PROGRAMS / "stopping.py"),
    ]
    cluster.made.rate("32mbit")
    try:
        result = cluster.horovodrun(*words, limit=200, **limits)
    finally:
        cluster.made.rate("none")
    before, _, after = result.stderr.partition("<slow took ")
    assert "no sign of life" not in before and float(after.split()[0]) > 4, result.stderr
    while_it = "while rank 0 .*'last', 16777216 bytes"
    assert re.search(rf"no sign of .*rank 1 for [1-3] s, {while_it}", after), result.stderr
    lost = f"failed on rank 0: .*lost rank 1: .* [2-4] s, {while_it}; HOROVOD_STALL"
    assert re.search(lost, result.stdout) and result.returncode != 0, result.stdout + result.stderr


def found(folder: Path) -> list[dict[str, Any]]:
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(4)]


@pytest.mark.timeout(600)  # with the thousand steps of `make test-nightly`
def test_hundreds_of_steps_keep_all_ranks_identical(limited: Cluster, tmp_path: Path) -> None:
    """A second run with HOROVOD_DETERMINISTIC repeats the first, bit for bit."""
    (first, last), folders = steps.LOOKED_AT, (tmp_path / "whole", tmp_path / "again")
    for folder, count in zip(folders, (last, first), strict=True):
        folder.mkdir()
        run(limited, "steps.py", 2, folder, count, HOROVOD_DETERMINISTIC="1")
    whole, again = map(found, folders)
    for rank in range(1, 4):
        assert whole[rank]["digests"] == whole[0]["digests"]
    losses = np.array(whole[0]["losses"])
    for name, begin, end in zip(steps.COMPRESSIONS, losses[:20].mean(0), losses[-20:].mean(0), strict=True):
        assert end < 0.5 * begin, f"{name} has learned nothing"
    end = whole[0]["digests"][str(last)]
    assert end["fp16"] == end.pop("bit16"), "Horovod's name, the same codec"
    assert len(set(end.values())) == len(end), "some are the same"
    assert again[0]["digests"][str(first)] == whole[0]["digests"][str(first)]
