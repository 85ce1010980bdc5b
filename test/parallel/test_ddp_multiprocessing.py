"""Ranks of native DDP that multiprocessing starts leave their job when they end, for every start method."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import launching
import pytest
from rank_jobs import run_job

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import multiprocessing, os, sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from horovod.torch import ddp
from horovod.torch.ddp.backend import HorovodProcessGroup  # threads that end with the process

def train(rank, port, how):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port, RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 64))
    ddp.compress(model, "bit8")
    for step in range(3):
        if step == 2 and rank == 0 and how != "well":
            raise SystemExit(5) if how == "exits" else ArithmeticError("it went wrong")
        try:
            model(torch.ones(2, 64)).sum().backward()
        except RuntimeError as error:
            print("heard", error, flush=True)
            return
    time.sleep(rank)  # so that one is there when the other ends

if __name__ == "__main__":
    port, method, how = sys.argv[1:]
    context = multiprocessing.get_context(method)
    ranks = [context.Process(target=train, args=(rank, port, how)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    print([rank.exitcode for rank in ranks])
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def said(program: Path, method: str, how: str) -> str:
    port = str(launching.free_port())
    done = run_job([sys.executable, str(program), port, method, how], env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stdout
    return done.stdout


FORKSERVER = pytest.param("forkserver", marks=pytest.mark.slow)
METHODS = pytest.mark.parametrize("method", ["fork", "spawn", FORKSERVER])


@METHODS
def test_nobody_hears_an_error_of_ranks_that_end_well(program: Path, method: str) -> None:
    *lines, codes = said(program, method, "well").splitlines()
    assert codes == "[0, 0]"
    assert len(lines) == 1 and lines[0].startswith("horovod: bit8: 1 of 2 tensors"), lines


@METHODS
def test_a_rank_that_exits_leaves_in_order(program: Path, method: str) -> None:
    text = said(program, method, "exits")
    assert re.search(r"Disagreement: rank 0 |been shut down", text), text
    assert text.endswith("[5, 0]\n") and "lost rank" not in text


@pytest.mark.parametrize("method", ["fork", FORKSERVER])
def test_a_forked_rank_that_an_exception_ends_is_lost(program: Path, method: str) -> None:
    text = said(program, method, "raises")
    assert "ArithmeticError: it went wrong" in text
    assert re.search(r"\bLostRank: .*rank 1 lost rank 0 \(", text), text
    assert text.endswith("[1, 0]\n"), text
