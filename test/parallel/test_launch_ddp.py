"""`horovodrun --ddp` with real processes: scripts of torch.distributed, which do not use Horovod."""

import json
import os
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed_package import environment_with_metadata
from launching import horovodrun

import horovod

TELL = """
import json, os
print(json.dumps({name: text for name, text in os.environ.items() if name != "LS_COLORS"}))
"""
MEET = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([2.0 ** dist.get_rank()])
dist.all_reduce(total)
print("sum", total.item(), "rank", dist.get_rank(), "of", dist.get_world_size())
dist.destroy_process_group()
"""
TRAIN = """
import hashlib, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
torch.manual_seed(dist.get_rank())
model(torch.randn(8, 64)).square().sum().backward()
print(hashlib.sha256(model.module.weight.grad.numpy().tobytes()).hexdigest())
dist.destroy_process_group()
"""
ONE_FAILS = """
import datetime, sys, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
if dist.get_rank() == 1:
    sys.exit(7)
dist.all_reduce(torch.ones(1000))
"""


def run(tmp_path: Path, script: str, *options: str, ranks: int = 2, **more: str) -> CompletedProcess[str]:
    (tmp_path / "script.py").write_text(script)
    return horovodrun(
        "-np", str(ranks), *options, sys.executable, str(tmp_path / "script.py"), limit=110, **more
    )


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_meet(tmp_path: Path, ranks: int) -> None:
    # The variables of another job must not be taken for this one's.
    stale = {
        "MASTER_ADDR": "192.0.2.1",
        "MASTER_PORT": "1",
        "RANK": "9",
        "WORLD_SIZE": "10",
        "LOCAL_RANK": "9",
    }
    result = run(tmp_path, MEET, "--ddp", ranks=ranks, **stale)
    assert result.returncode == 0, result.stderr
    total = float(2**ranks - 1)
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}]<stdout>:sum {total} rank {rank} of {ranks}" for rank in range(ranks)
    ]


def test_what_a_rank_is_told(tmp_path: Path) -> None:
    options = ("--ddp", "--compression", "bit8", "--master-addr", "localhost", "--network-interfaces", "lo")
    result = run(tmp_path, TELL, *options)
    assert result.returncode == 0, result.stderr
    lines = sorted(result.stdout.splitlines())
    for rank, line in enumerate(lines):
        told = json.loads(line.partition(":")[2])
        expected = {
            "MASTER_ADDR": "localhost",
            **{"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"},
            **{"GROUP_RANK": "0", "NODE_RANK": "0", "GROUP_WORLD_SIZE": "1"},
            **{"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"},
            "HOROVOD_DDP_COMPRESSION": "bit8",
        }
        assert told.items() >= expected.items()
        assert "HOROVOD_COMPRESSION" not in told
        assert told["OMP_NUM_THREADS"] == os.environ.get("OMP_NUM_THREADS", "1")


def test_ranks_have_a_secret_that_is_new_each_time(tmp_path: Path) -> None:
    """Their store listens on all addresses."""

    def secrets_of(**more: str) -> list[str]:
        result = run(tmp_path, TELL, "--ddp", **more)
        assert result.returncode == 0, result.stderr
        return [json.loads(line.partition(":")[2])["HOROVOD_SECRET"] for line in result.stdout.splitlines()]

    (first, again), (other, _) = secrets_of(), secrets_of()
    assert first == again != other and len(bytes.fromhex(first)) == 32
    assert secrets_of(HOROVOD_SECRET="one of the user's") == ["one of the user's"] * 2


def test_what_the_user_sets_stays(tmp_path: Path) -> None:
    own = {"GLOO_SOCKET_IFNAME": "own0", "NCCL_SOCKET_IFNAME": "own1", "OMP_NUM_THREADS": "3"}
    result = run(tmp_path, TELL, "--ddp", "--network-interfaces", "lo", ranks=1, **own)
    assert json.loads(result.stdout.partition(":")[2]).items() >= own.items()


def test_without_it_nothing_is_told(tmp_path: Path) -> None:
    result = run(tmp_path, TELL, ranks=1, RANK="mine")
    told = json.loads(result.stdout.partition(":")[2])
    assert told["RANK"] == "mine"
    assert not told.keys() & {"MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "GROUP_RANK", "TORCHELASTIC_RUN_ID"}


def test_a_script_that_says_nothing_is_compressed(tmp_path: Path) -> None:
    installed = environment_with_metadata(tmp_path)
    plain = run(tmp_path, TRAIN, "--ddp", **installed)
    compressed = run(tmp_path, TRAIN, "--ddp", "--compression", "bit8", **installed)
    sums = []
    for result in (plain, compressed):
        assert result.returncode == 0, result.stderr
        assert "will not be compressed" not in result.stderr
        of_ranks = {line.partition(":")[2] for line in result.stdout.splitlines()}
        assert len(of_ranks) == 1, result.stdout
        sums += of_ranks
    assert sums[0] != sums[1]


def test_what_keeps_compression_away_is_said(tmp_path: Path) -> None:
    off = {**environment_with_metadata(tmp_path), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    line = ("-np", "1", "--ddp", "--compression", "bit8", "true")
    result = horovodrun(*line, **off)
    assert result.returncode == 0
    assert "warning: gradients will not be compressed, as TORCH_DEVICE_BACKEND_AUTOLOAD=0" in result.stderr


def test_a_rank_that_fails_ends_the_others(tmp_path: Path) -> None:
    result = run(tmp_path, ONE_FAILS, "--ddp", ranks=3)
    assert result.returncode == 7
    assert "rank 1 on host" in result.stderr and "exited with code 7" in result.stderr


def test_what_cannot_be_started() -> None:
    missing = horovodrun("-np", "2", "--ddp", "no-such-command")
    assert missing.returncode == 127
    assert "the command no-such-command was not found (PATH is" in missing.stderr
    lonely = horovodrun("-np", "2", "--master-port", "29500", "true")
    assert lonely.returncode == 2 and "give --ddp too" in lonely.stderr


def test_a_function() -> None:
    def total() -> float:
        import torch
        import torch.distributed as dist

        dist.init_process_group("gloo")
        count = torch.ones(1)
        dist.all_reduce(count)
        dist.destroy_process_group()
        return count.item()

    assert horovod.run(total, num_proc=2, ddp=True) == [2.0, 2.0]
