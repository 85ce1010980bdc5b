"""Ranks of native DistributedDataParallel when one of them dies, or fails by itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from ddp_jobs import run_separately

ROOT = Path(__file__).resolve().parents[2]

REDUCES = """
import datetime, os, signal, sys, threading, time
from pathlib import Path
import torch, torch.distributed as dist
from horovod.torch.compression import Compression, Compressor, Rules, resolved
from horovod.torch.ddp.reducer import GroupReducer
from horovod.torch.reduction import Gradient, Reduction

class Picky(Compressor):
    combine = "gather"
    def compress(self, tensor):
        if tensor[0] == 3 and dist.get_rank() == 1:
            raise ArithmeticError("three is not for me")
        return tensor.clone(), None
    def decompress(self, codes, ctx):
        return codes

dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=40))
rank, how = dist.get_rank(), sys.argv[1]
elements = 10_000_000 if how == "killed within" else 50_000
reducer = GroupReducer(Reduction(Rules("none")))
for step in range(6):
    if step == 3 and rank == 1 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 3 and rank == 1 and how == "ends":
        sys.exit(5)
    if step == 3 and rank == 1 and how == "killed within":
        threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
    gradients = [torch.full((elements,), float(step)) for _ in range(4)]
    compressor = resolved(Picky if how == "raises" else Compression.bit8)
    futures = []
    for i in range(5):
        try:
            if i < 4:
                futures.append(reducer.start([Gradient(f"g{i}", gradients[i], compressor)]))
            else:
                for future in futures:
                    future.wait()
        except Exception as error:
            print(f"step {step}: {type(error).__name__}: {error}", flush=True)
            try:
                reducer.start([Gradient("later", torch.ones(10), compressor)])
            except Exception as later:
                print(f"later: {type(later).__name__}: {later}", flush=True)
            Path(f"{rank} knows").touch()
            while how == "raises" and not all(Path(f"{r} knows").exists() for r in range(3)):
                time.sleep(0.01)  # while this rank's process is there
            reducer.close()
            sys.exit(7)
print("ends well", flush=True)  # and without close()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    path = tmp_path / "reduces.py"
    path.write_text(REDUCES)
    return path


@pytest.mark.parametrize("np", [2, 4])
def test_a_reducer_needs_no_close(script: Path, np: int) -> None:
    for rank in run_separately(np, [sys.executable, str(script), "well"]):
        assert rank.returncode == 0 and rank.stdout.endswith("ends well\n"), rank.stdout


@pytest.mark.parametrize("compression", ["none", "bit8"])
def test_a_killed_rank_ends_the_others_of_a_training(compression: str) -> None:
    """Well before torch's timeout of a minute: the kernel closes the connections of a dead process."""
    program = Path(__file__).with_name("ddp_killed_rank.py")
    ranks = run_separately(3, [sys.executable, str(program), compression], timeout=50)
    assert [rank.returncode for rank in ranks] == [3, -9, 3], ranks
    for survivor in (ranks[0].stdout, ranks[2].stdout):
        said = r"Connection (closed|reset) by peer" if compression == "none" else "lost rank 1 "
        assert re.search(rf"step 2: \w+Error: .*{said}", survivor, re.DOTALL), survivor


LEFT = r"\bShutDown: |\bDisagreement: rank 1 .*'allreduce\.g0'"


@pytest.mark.parametrize("how", ["killed", "ends", "killed within"])
@pytest.mark.parametrize(
    ("np", "transport"), [(2, "auto"), pytest.param(3, "auto", marks=pytest.mark.slow), (3, "tcp")]
)
def test_others_of_a_rank_that_is_gone_hear_of_it(script: Path, np: int, transport: str, how: str) -> None:
    words = [sys.executable, str(script), how]
    ranks = run_separately(np, words, env={"HOROVOD_TRANSPORT": transport})
    assert ranks[1].returncode == (5 if how == "ends" else -9), ranks[1].stdout
    for rank in [*ranks[:1], *ranks[2:]]:
        assert rank.returncode == 7, rank.stdout
        first, later = (line for line in rank.stdout.splitlines() if line.startswith(("step", "later")))
        for line in (first, later):
            assert re.search(LEFT if how == "ends" else r" LostRank: .*lost rank 1 \(", line), rank.stdout
        assert first.startswith("step 3: "), rank.stdout


def test_others_of_a_rank_whose_compressor_raises_hear_of_it_while_it_is_there(script: Path) -> None:
    ranks = run_separately(3, [sys.executable, str(script), "raises"])
    assert [rank.returncode for rank in ranks] == [7, 7, 7], ranks
    said = "ArithmeticError: three is not for me\n"
    assert ranks[1].stdout == f"step 3: {said}later: {said}"
    assert all(re.search(f"step 3: .*({LEFT})", ranks[r].stdout) for r in (0, 2)), ranks
