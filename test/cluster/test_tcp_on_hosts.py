"""Jobs on two hosts without MPI, started as torchrun, srun and a user's own loop start them."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TypeAlias

import pytest
from rig import NET, Cluster

PROGRAM = str(Path(__file__).parent / "host_programs" / "digest_of_training.py")
TRAINED = [sys.executable, PROGRAM, "100"]
HOSTS = ("t1", "t2")
LIMIT = 90.0
Launched: TypeAlias = "list[subprocess.Popen[str]]"


def by_hand(
    cluster: Cluster, words: list[str], per_host: int = 2, port: str = "", **more: str
) -> list[subprocess.Popen[str]]:
    port = port or cluster.next_port()
    return [
        cluster.start(
            host,
            words,
            RANK=str(number * per_host + local),
            WORLD_SIZE=str(2 * per_host),
            MASTER_ADDR=f"{NET}.1",
            MASTER_PORT=port,
            **more,
        )
        for number, host in enumerate(HOSTS)
        for local in range(per_host)
    ]


def by_srun(cluster: Cluster, words: list[str], **more: str) -> Launched:
    """Start ranks as srun does without PMI."""
    return [
        cluster.start(
            host,
            words,
            SLURM_JOB_ID="77",
            SLURM_STEP_ID="0",
            SLURM_PROCID=str(2 * number + local),
            SLURM_LOCALID=str(local),
            SLURM_STEP_NUM_TASKS="4",
            SLURM_NTASKS="4",
            SLURM_STEP_NODELIST="t[1-2]",
            **more,
        )
        for number, host in enumerate(HOSTS)
        for local in range(2)
    ]


def by_torchrun(cluster: Cluster, words: list[str], **more: str) -> Launched:
    options = [
        "--nnodes",
        "2",
        "--nproc-per-node",
        "2",
        "--master-addr",
        f"{NET}.1",
        "--master-port",
        cluster.next_port(),
    ]
    launcher = [sys.executable, "-m", "torch.distributed.run", *options]
    return [
        cluster.start(host, [*launcher, "--node-rank", str(number), *words[1:]], **more)
        for number, host in enumerate(HOSTS)
    ]


def digests(processes: Launched) -> list[str]:
    said = []
    for process in processes:
        out, err = process.communicate(timeout=LIMIT)
        assert process.returncode == 0, out + err
        said += [line for line in out.splitlines() if ": " in line]
    return sorted(said)


def test_all_launchers_give_the_same_training(cluster: Cluster) -> None:
    """MNIST, 2 hosts with 2 ranks each, 8 bits: the same bits on all ranks, and as under horovodrun."""
    settings = {"HOROVOD_DETERMINISTIC": "1", "OMP_NUM_THREADS": "1"}
    job = cluster.horovodrun("-np", "4", "-H", "t1:2,t2:2", *TRAINED, limit=LIMIT, **settings)
    assert job.returncode == 0, job.stdout + job.stderr
    expected = sorted(line.partition(">:")[2] for line in job.stdout.splitlines() if ": " in line)
    assert len(expected) == 4 and len({line.split()[-1] for line in expected}) == 1, expected
    assert expected[0].startswith("0 of (4, 2, 2): ")
    for launch in (by_hand, by_srun, by_torchrun):
        assert digests(launch(cluster, TRAINED, **settings)) == expected, launch.__name__
    forced = cluster.horovodrun(
        "-np", "4", "-H", "t1:2,t2:2", *TRAINED, limit=LIMIT, HOROVOD_TRANSPORT="tcp", **settings
    )
    assert forced.returncode == 0, forced.stdout + forced.stderr
    flat = [line.split()[-1] for line in forced.stdout.splitlines() if ": " in line]
    assert len(flat) == 4 and len(set(flat)) == 1  # of the flat route, over TCP alone


def listening(cluster: Cluster, host: str, port: str) -> list[str]:
    """Return listening addresses, except sshd's; with the port only if it is this one."""
    rows = [line.split()[3] for line in cluster.run(host, ["ss", "-Hltn"]).stdout.splitlines()]
    ends = sorted({row for row in rows if not row.endswith(":22")})
    return [end if end.endswith(f":{port}") else end.rpartition(":")[0] for end in ends]


def test_ranks_listen_in_their_network_alone(cluster: Cluster) -> None:
    """torch's store on rank 0's host also listens on all addresses: docs/running.md lists all that do."""
    port = cluster.next_port()
    both = by_hand(cluster, [sys.executable, PROGRAM, "1000000000"], per_host=1, port=port)
    for process in both:
        assert process.stdout is not None and "under way" in process.stdout.readline()
    assert listening(cluster, "t1", port) == [f"*:{port}", f"{NET}.1"]
    assert listening(cluster, "t2", port) == [f"{NET}.2"]
    for process in both:
        process.kill()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize("how", ["cut", "unlink"])
def test_a_host_that_is_lost_is_named_within_twelve_seconds(cluster: Cluster, how: str) -> None:
    first, second = by_hand(cluster, [sys.executable, PROGRAM, "1000000000"], per_host=1)
    assert first.stdout is not None and "under way" in first.stdout.readline()
    lost = time.time()
    cluster.break_(how, "t2")
    out, err = first.communicate(timeout=LIMIT)
    when, _, error = out.strip().splitlines()[-1].partition(" ")
    assert first.returncode == 3 and "lost rank 1 (t2, process" in error, out + err
    assert float(when) - lost < 12.0, out
    second.kill()
    second.communicate(timeout=LIMIT)
