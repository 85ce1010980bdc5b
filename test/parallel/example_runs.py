"""Start the examples as their documentation does, with a time limit after which no process is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import busy
import launching
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIME_LIMIT = 100  # seconds
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
needs_mpi = pytest.mark.skipif(shutil.which("mpirun", path=PATH) is None, reason="there is no mpirun")
LAUNCHERS = ["python", "horovodrun", pytest.param("mpirun", marks=needs_mpi)]


def real_mnist() -> Path | None:
    """Return the folder of the real data, if this machine has it."""
    named = os.environ.get("MNIST_DATA_DIR")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "mnist"
    return folder if folder.is_dir() else None


needs_mnist = pytest.mark.skipif(
    real_mnist() is None, reason="no real MNIST: neither $MNIST_DATA_DIR nor ../shared/data/mnist"
)
CHECKSUM = re.compile(r"parameters bit-identical on (\d) rank\(s\), SHA-256 (\w+)")


def check_resumed(epoch: re.Pattern[str], whole: str, resumed: str) -> None:
    """Compare the output of a run of three epochs with that of a run that resumed after an interruption."""
    after = re.search(r"resuming after epoch (\d)", resumed)
    assert after and "resuming" not in whole
    epochs = epoch.findall(whole)
    assert [number for number, *_ in epochs] == ["1", "2", "3"]
    assert epoch.findall(resumed) == epochs[int(after[1]) :], "the epochs after it are those of the whole run"
    assert CHECKSUM.findall(resumed) == CHECKSUM.findall(whole) != []


def job(ranks: int) -> list[str]:
    """Return the words before a script that start it with this number of ranks."""
    return ["horovodrun", "-np", str(ranks), "python"]


def environment_with(more: dict[str, str]) -> dict[str, str]:
    """Return this environment, with this interpreter's programs first on PATH."""
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # for machines of one core
        "OMP_NUM_THREADS": "1",  # otherwise threads of ranks, and of other tests, wait for each other's cores
    }
    return os.environ | allowed | {"PATH": PATH} | more


def started(
    command: list[str], cwd: Path = EXAMPLES, **environment: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    """Yield `command` while it runs; at the end no process of it is left."""
    return launching.running(command, cwd, environment_with(environment))


def wait_for_checkpoint(process: subprocess.Popen[str], path: Path, limit: float) -> None:
    """Wait until a run has written its first checkpoint."""
    deadline = busy.limit(limit)
    while not path.exists():
        assert time.monotonic() < deadline and process.poll() is None, "no checkpoint was written"
        time.sleep(0.005)


def run(
    command: list[str],
    cwd: Path = EXAMPLES,
    time_limit: float = TIME_LIMIT,
    expected_exit: int | None = 0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run `command`; fail unless it ends as expected.

    expected_exit: None accepts any exit code.
    """
    done = launching.finished(command, cwd, environment_with(environment), time_limit)
    if expected_exit is not None:
        assert done.returncode == expected_exit, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


def run_example(
    launcher: str, script: str, *arguments: str, data: Path, expected_exit: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """Run a script of examples/ on the CPU: by itself, or with 2 ranks under horovodrun or mpirun."""
    prefix = {
        "python": ["python"],
        "horovodrun": job(2),
        "mpirun": ["mpirun", "-n", "2", "python"],
    }[launcher]
    return run(
        [*prefix, script, "--no-cuda", *arguments], expected_exit=expected_exit, MNIST_DATA_DIR=str(data)
    )
