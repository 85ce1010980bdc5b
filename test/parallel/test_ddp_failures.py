"""What becomes of native DistributedDataParallel's ranks when one of them is gone, or fails by itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from ddp_jobs import run_separately

ROOT = Path(__file__).resolve().parents[2]

REDUCES = """
import datetime, os, signal, sys, time
from pathlib import Path
import torch, torch.distributed as dist
from horovod.torch.ddp import carried
from horovod.torch.compression import Compression, Compressor, resolved
from horovod.torch.ddp.reducer import Gradient, GroupReducer

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
if how == "killed between steps":
    carried.STEP_ELEMENTS = 1
    packs, packed = carried.CarriedTensors.pack, [0]
    def pack(self, messages, step):
        packed[0] += 1
        if packed[0] == 40 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        packs(self, messages, step)
    carried.CarriedTensors.pack = pack
reducer = GroupReducer()
for step in range(6):
    if step == 3 and rank == 1 and how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 3 and rank == 1 and how == "ends":
        sys.exit(5)
    gradients = [torch.full((50_000,), float(step)) for _ in range(4)]
    compressor = resolved(Picky if how == "raises" else Compression.bit8)
    futures = [reducer.start([Gradient(f"g{i}", g, compressor)]) for i, g in enumerate(gradients)]
    for future in futures:
        try:
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


@pytest.mark.parametrize("how", ["killed", "ends"])
@pytest.mark.parametrize("np", [2, 3])
def test_others_of_a_rank_that_is_gone_get_torchs_error(script: Path, np: int, how: str) -> None:
    ranks = run_separately(np, [sys.executable, str(script), how])
    assert ranks[1].returncode == (-9 if how == "killed" else 5), ranks[1].stdout
    lost = "rank 1" if np == 2 else "one of the 2 other ranks"
    for number in {*range(np)} - {1}:
        rank = ranks[number]
        assert rank.returncode == 7, rank.stdout
        first, later = rank.stdout.splitlines()
        said = f"rank {number} of {np} has heard nothing more of {lost}: see what that said last: "
        assert first.startswith(f"step 3: RuntimeError: {said}") and "onnection" in first, rank.stdout
        assert later == first.replace("step 3", "later")


@pytest.mark.parametrize("np", [2, 3])
def test_others_of_a_rank_that_dies_with_half_of_a_tensor_sent(script: Path, np: int) -> None:
    ranks = run_separately(np, [sys.executable, str(script), "killed between steps"])
    assert ranks[1].returncode == -9, ranks[1].stdout
    for rank in [*ranks[:1], *ranks[2:]]:
        assert rank.returncode == 7, rank.stdout
        first, later = rank.stdout.splitlines()
        assert first.startswith("step ") and "RuntimeError: " in first and "onnection" in first, rank.stdout
        assert later == first.replace(first.split(":")[0], "later"), rank.stdout


def test_others_of_a_rank_whose_compressor_raises_hear_of_it_while_it_is_there(script: Path) -> None:
    ranks = run_separately(3, [sys.executable, str(script), "raises"])
    assert [rank.returncode for rank in ranks] == [7, 7, 7], ranks
    said = "ArithmeticError: three is not for me\n"
    assert ranks[1].stdout == f"step 3: {said}later: {said}"
    assert all(rank.stdout.startswith("step 3: RuntimeError") for rank in (ranks[0], ranks[2])), ranks
