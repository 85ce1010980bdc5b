"""The examples of `horovodrun --help`, and horovodrun's lines at the end of real jobs."""

import re
import shlex
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from installed_package import environment_with_metadata
from launching import horovodrun, needs_mpirun

from horovod.runner.command_line import EXAMPLES

HVD = """
import torch, horovod.torch as hvd
hvd.init()
model = torch.nn.Linear(512, 512)
plain = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.DistributedOptimizer(plain, model.named_parameters())
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 512)).square().mean().backward()
    optimizer.step()
print("trained", hvd.size())
"""
DDP = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(512, 512))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(8, 512)).square().mean().backward()
    optimizer.step()
print("trained", dist.get_world_size())
dist.destroy_process_group()
"""
SPAWNS = """
import os, sys
import torch.multiprocessing as mp

def rank(number):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(number), "2"
    exec(open(sys.argv[1]).read(), {})

if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
"""
# 5 steps of 512 x 512 + 512 elements on two ranks; the 8-bit ones with scales.
SAVED = r"horovodrun: gradients: 11 MB travelled as 2\.7 MB \(3\.9x less\); ranks waited \d+ % of the time"


def own(result: CompletedProcess[str]) -> list[str]:
    return [line for line in result.stderr.splitlines() if line.startswith("horovodrun: ")]


@needs_mpirun
@pytest.mark.parametrize("typed", EXAMPLES)
def test_an_example_of_help(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text(HVD)
    (tmp_path / "train_ddp.py").write_text(DDP)
    installed = environment_with_metadata(tmp_path)
    monkeypatch.chdir(tmp_path)
    result = horovodrun(*shlex.split(typed)[1:], limit=110, **installed)
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("trained 2") == 2
    said = own(result)
    assert len(said) == ("--compression" in typed) and all(re.match(SAVED, line) for line in said)


def test_a_script_that_reduces_nothing(tmp_path: Path) -> None:
    """--quiet does not suppress errors and warnings."""
    (tmp_path / "alone.py").write_text("print('trained alone')\n")
    line = ("-np", "2", "--quiet", "--compression", "bit8")
    result = horovodrun(*line, sys.executable, str(tmp_path / "alone.py"))
    assert result.returncode == 0 and result.stdout.count("trained alone") == 2
    (said,) = own(result)
    assert said.startswith("horovodrun: warning: --compression had no effect: no rank called hvd.init() or ")


def test_a_quiet_job(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(HVD)
    line = ("-np", "2", "--quiet", "--compression", "bit8")
    result = horovodrun(*line, sys.executable, str(tmp_path / "train.py"), limit=110)
    assert result.returncode == 0 and own(result) == [], result.stderr


@pytest.mark.cold  # the notes of spawned processes take the way of their parents, which forks do not have
def test_processes_that_a_rank_spawns_are_counted(tmp_path: Path) -> None:
    """multiprocessing does not pass the rank's pipe of notes to them."""
    (tmp_path / "train.py").write_text(DDP)
    (tmp_path / "spawn.py").write_text(SPAWNS)
    command = (sys.executable, str(tmp_path / "spawn.py"), str(tmp_path / "train.py"))
    options = ("-np", "1", "--ddp", "--compression", "bit8")
    result = horovodrun(*options, *command, limit=110, **environment_with_metadata(tmp_path))
    assert result.returncode == 0, result.stderr
    (said,) = own(result)
    assert re.match(SAVED, said)


def test_a_job_that_fails_says_why_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text("import sys\nsys.exit(3)\n")
    line = ("-np", "2", "--compression", "bit8")
    result = horovodrun(*line, sys.executable, str(tmp_path / "fails.py"))
    assert result.returncode == 3
    (said,) = own(result)
    assert "exited with code 3" in said
