"""Jobs whose processes are killed, or saved and started again, in the middle of tuning."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
from launching import horovodrun

TUNED = {
    "HOROVOD_AUTOTUNE": "1",
    "HOROVOD_AUTOTUNE_MAX_STEPS": "300",
    "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE": "2",
    "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
}
TRAIN = """
import hashlib, os, signal, sys, torch
import horovod.torch as hvd
hvd.init()
torch.manual_seed(3)
model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
optimizer = hvd.DistributedOptimizer(
    torch.optim.SGD(model.parameters(), lr=0.01), model.named_parameters(), compression="int4"
)
data = torch.Generator().manual_seed(hvd.rank())

def train(steps):
    for _ in range(steps):
        x = torch.randn(8, 64, generator=data)
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()

def told(when):
    values = torch.cat([p.detach().flatten() for p in model.parameters()])
    assert values.isfinite().all()
    digest = hashlib.sha256(values.numpy().tobytes()).hexdigest()
    phase = hvd.tuning()["phase"]
    print(f"<{when} {hvd.rank()} {digest} {phase}>", flush=True)
"""


def run(np: int, program: str, folder: Path, **more: str) -> tuple[int, str, str]:
    script = folder / "train.py"
    script.write_text(TRAIN + textwrap.dedent(program))
    tuned = {**TUNED, "HOROVOD_AUTOTUNE_CACHE": str(folder / "tune"), **more}
    done = horovodrun("-np", str(np), sys.executable, str(script), limit=90, **tuned)
    return done.returncode, done.stdout, done.stderr


def told(output: str, when: str) -> list[list[str]]:
    """Return digest and phase of each rank that reported."""
    words = (line.partition(f"<{when} ")[2].partition(">")[0] for line in output.splitlines())
    return [text.split(" ", 2)[1:] for text in words if text]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("at", [6, 41])  # before the first trial, and in the middle
def test_a_killed_rank_is_named(at: int, tmp_path: Path) -> None:
    code, output, error = run(
        3,
        f"""
        train({at})
        told("before")
        if hvd.rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        train(500)
        told("after")
        """,
        tmp_path,
    )
    assert code == 128 + 9, error
    assert "rank 1" in error and "killed by signal 9" in error
    assert len({digest for digest, _ in told(output, "before")}) == 1 and not told(output, "after")


@pytest.mark.timeout(200)
def test_a_checkpoint_in_the_middle_and_a_job_that_goes_on_from_it(tmp_path: Path) -> None:
    saved = tmp_path / "saved.pt"
    code, output, error = run(
        2,
        f"""
        train(40)
        optimizer.consolidate_residuals()
        if hvd.rank() == 0:
            torch.save({{"model": model.state_dict(), "optimizer": optimizer.state_dict()}}, {str(saved)!r})
        told("saved")
        train(20)
        told("end")
        """,
        tmp_path,
    )
    assert code == 0, error
    for when in ("saved", "end"):
        ranks = told(output, when)
        assert len(ranks) == 2 and ranks[0] == ranks[1], "ranks have the same"
        assert ranks[0][1] == "searching"
    [before, _] = told(output, "saved")

    code, output, error = run(
        2,
        f"""
        found = torch.load({str(saved)!r})
        model.load_state_dict(found["model"])
        optimizer.load_state_dict(found["optimizer"])
        told("loaded")
        train(40)
        told("end")
        """,
        tmp_path,
    )
    assert code == 0 and "Error feedback begins anew" not in error, error
    assert {digest for digest, _ in told(output, "loaded")} == {before[0]}
    ranks = told(output, "end")
    assert len(ranks) == 2 and ranks[0] == ranks[1] and ranks[0][1] == "searching"
