"""Random training scripts with ranks as processes; see test/single/support/random_scripts.py.

Each is a separate job, which all ranks begin and leave. Ranks exchange their results by files, because the
test must not rely on the tested operations. To run many, or some of them by hand:

    HOROVOD_TEST_CASES=150 mpirun -np 3 python -m pytest test/parallel/ranks/test_random_scripts.py
    HOROVOD_TEST_SEEDS=17,40 mpirun -np 3 python -m pytest test/parallel/ranks/test_random_scripts.py
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

import horovod.torch as hvd

sys.path.append(str(Path(__file__).parents[2] / "single" / "support"))

from random_scripts import DEADLINE, HANGS, fault_of, hanging, import_all, outcome_of, report
from random_scripts_program import Program, drawn
from random_scripts_rank import Outcome, Script

CASES = int(os.environ.get("HOROVOD_TEST_CASES", "10"))  # CI runs the others with threads
SEEDS = [int(seed) for seed in os.environ.get("HOROVOD_TEST_SEEDS", "").split(",") if seed]
MOST_FAULTS = 5  # after which the test stops


@pytest.mark.filterwarnings("ignore")  # about gradients that are too small for compression
@pytest.mark.timeout(280)
def test_random_scripts(rank: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(hvd.broadcast_object(tempfile.mkdtemp() if rank == 0 else "", 0))
    for name, text in {
        "CACHE": str(folder / "tuned"),
        "WARMUP_SAMPLES": "1",
        "STEPS_PER_SAMPLE": "1",
    }.items():
        monkeypatch.setenv(f"HOROVOD_AUTOTUNE_{name}", text)
    hvd.shutdown()
    import_all()
    reports: list[str] = []
    for seed in SEEDS or range(1000, 1000 + CASES):  # other seeds than those of threads
        program = drawn(seed, size)
        monkeypatch.setenv("HOROVOD_AUTOTUNE", "1" if program.autotune else "0")
        outcomes = run(program, rank, folder)
        # All ranks learn of errors that make later scripts pointless; rank 0 alone compares with one process.
        fault = fault_of(program, outcomes, compares=rank == 0)
        reports += [report(program, outcomes, fault)] if fault else []
        if any(each.error and each.error[0] == HANGS for each in outcomes):
            break
    monkeypatch.setenv("HOROVOD_AUTOTUNE", "0")
    hvd.init()  # later tests expect a job
    hvd.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    if reports:
        text = "\n\n".join(reports[:MOST_FAULTS])
        pytest.fail(
            f"{len(reports)} scripts went wrong on {size} ranks that are processes:\n{text}", pytrace=False
        )


def run(program: Program, rank: int, folder: Path) -> list[Outcome]:
    """Run one script as a job; return the outcomes of all ranks."""
    mine, ended = folder / f"{program.seed}.{rank}", threading.Event()
    scripts: dict[int, Script] = {}

    def end_a_hang() -> None:
        if not ended.wait(DEADLINE):
            tell(mine, hanging(scripts.get(rank)))
            hvd.shutdown()  # the script gets an error, which is not examined

    threading.Thread(target=end_a_hang, daemon=True).start()
    outcome = outcome_of(program, rank, scripts)
    ended.set()
    tell(mine, outcome)
    others = [folder / f"{program.seed}.{each}" for each in range(program.ranks)]
    end = time.monotonic() + 2 * DEADLINE  # by then each has reported at least that it hangs
    while not all(path.exists() for path in others) and time.monotonic() < end:
        time.sleep(0.002)
    hvd.shutdown()
    return [torch.load(path, weights_only=False) if path.exists() else hanging(None) for path in others]


def tell(path: Path, outcome: Outcome) -> None:
    """Write the outcome at once, and only the first."""
    if not path.exists():
        draft = path.with_suffix(f".{os.getpid()}.draft")
        torch.save(outcome, draft)
        draft.rename(path)
