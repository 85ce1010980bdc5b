"""`horovodrun --ddp` on several hosts: ranks of torch.distributed meet, and know their places."""

import json
import sys
import time
from pathlib import Path

import busy
import pytest
from rig import NET, Cluster  # puts test/parallel on the path
from test_slurm import variables  # noqa: F401 -- a fixture

SCRIPT = """
import json, os, torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
names = "RANK LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE WORLD_SIZE MASTER_ADDR"
place = {name: os.environ[name] for name in names.split()}
print(json.dumps({"host": os.uname().nodename, "sum": total.item(), **place}))
dist.destroy_process_group()
"""

LISTENER = """
import socket, time
with socket.create_server(("", 29501)):
    print("listening", flush=True)
    time.sleep(60)
"""


def places(cluster: Cluster, tmp_path: Path, *options: str, **more: str) -> list[dict[str, str]]:
    """Return the lines that each rank prints, in the order of ranks."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = (sys.executable, str(tmp_path / "script.py"))
    result = cluster.horovodrun("--ddp", *options, *command, limit=100, **more)
    assert result.returncode == 0, result.stderr
    found = [json.loads(line.partition(":")[2]) for line in result.stdout.splitlines()]
    return sorted(found, key=lambda place: int(place["RANK"]))


def address_of(cluster: Cluster, host: str) -> str:
    """Return a host's address in the network of the hosts."""
    words = cluster.network(host, "-4 -o addr show scope global").split()
    return next(word.partition("/")[0] for word in words if word.startswith(NET))


@pytest.mark.parametrize("hosts", ["t1:2,t2:1", "t3:1,t1:2", "t2:1,t3:2"])
def test_ranks_meet_at_rank_0s_host(cluster: Cluster, tmp_path: Path, hosts: str) -> None:
    slots = [(name, int(number)) for name, _, number in (h.partition(":") for h in hosts.split(","))]
    found = places(cluster, tmp_path, "-np", "3", "-H", hosts)
    expected = [
        (name, str(local), str(of), str(group))
        for group, (name, of) in enumerate(slots)
        for local in range(of)
    ]
    places_found = [(p["host"], p["LOCAL_RANK"], p["LOCAL_WORLD_SIZE"], p["GROUP_RANK"]) for p in found]
    assert places_found == expected
    for place in found:
        assert (place["sum"], place["WORLD_SIZE"], place["GROUP_WORLD_SIZE"]) == (6.0, "3", "2")
        assert place["MASTER_ADDR"] == address_of(cluster, slots[0][0])


def test_in_a_slurm_job(cluster: Cluster, tmp_path: Path, variables: dict[str, str]) -> None:  # noqa: F811
    found = places(cluster, tmp_path, **variables)
    assert [place["host"] for place in found] == ["t1", "t1", "t2", "t3"]
    assert [place["GROUP_RANK"] for place in found] == ["0", "0", "1", "2"]
    asked = (tmp_path / "log").read_text()
    assert asked.count("agents/agent.py") == 2


def test_a_port_that_is_taken_on_another_host(cluster: Cluster) -> None:
    taken = cluster.start("t2", [sys.executable, "-c", LISTENER])
    try:
        assert taken.stdout is not None and taken.stdout.readline() == "listening\n"
        line = ["--ddp", "-np", "2", "-H", "t2:1,t1:1", "--master-port", "29501", "true"]
        refused = cluster.horovodrun(*line)
        assert refused.returncode == 2
        assert "--master-port 29501 is in use on t2, where rank 0 would listen" in refused.stderr
    finally:
        taken.kill()
        taken.communicate()


def bytes_of_ten_steps(cluster: Cluster, folder: Path, per_host: int) -> int:
    """Return the bytes that the second host sends by its cable; two hosts, 2 M parameters in 8 bits."""
    folder.mkdir()
    program = str(Path(__file__).parent / "host_programs" / "ddp_steps.py")
    port = cluster.next_port()
    ranks = [
        cluster.start(
            host,
            [sys.executable, program, str(folder)],
            RANK=str(number * per_host + local),
            WORLD_SIZE=str(2 * per_host),
            MASTER_ADDR=f"{NET}.1",
            MASTER_PORT=port,
        )
        for number, host in enumerate(("t1", "t2"))
        for local in range(per_host)
    ]

    def wait_for(name: str) -> int:
        deadline = busy.limit(60)
        while len(list(folder.glob(f"{name}.*"))) < len(ranks) and time.monotonic() < deadline:
            time.sleep(0.02)
        return cluster.made.bytes("t2")[1]

    before = wait_for("under_way")
    (folder / "go").touch()
    after = wait_for("done")
    (folder / "end").touch()
    for rank in ranks:
        out, err = rank.communicate(timeout=60)
        assert rank.returncode == 0, out + err
    return after - before


def test_two_ranks_of_a_host_send_what_one_does(cluster: Cluster, tmp_path: Path) -> None:
    one = bytes_of_ten_steps(cluster, tmp_path / "one", 1)
    two = bytes_of_ten_steps(cluster, tmp_path / "two", 2)
    assert 10 * 2_000_000 < one < 1.2 * 10 * 2_000_000
    assert two < 1.05 * one, (one, two)
