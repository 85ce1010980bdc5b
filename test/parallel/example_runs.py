"""Starts the examples as their documentation says, with a time limit that leaves no process behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
TIME_LIMIT = 100  # seconds
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
needs_mpi = pytest.mark.skipif(shutil.which("mpirun", path=PATH) is None, reason="there is no mpirun")
LAUNCHERS = ["python", "horovodrun", pytest.param("mpirun", marks=needs_mpi)]


def real_mnist() -> Path | None:
    """The real data, if this machine has it."""
    named = os.environ.get("MNIST_DATA_DIR")
    folder = Path(named) if named else ROOT.parent / "shared" / "data" / "mnist"
    return folder if folder.is_dir() else None


def job(ranks: int) -> list[str]:
    """What to write before a script to start it as so many ranks."""
    return ["horovodrun", "-np", str(ranks), "python"]


@contextmanager
def started(command: list[str], cwd: Path = EXAMPLES, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """`command`, running, with this interpreter's programs first on PATH; at the end no process is left."""
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # machines of one core test, too
        "OMP_NUM_THREADS": "1",  # or threads of ranks, and of other tests, wait for each other's cores
    }
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=os.environ | allowed | {"PATH": PATH} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def run(
    command: list[str],
    cwd: Path = EXAMPLES,
    time_limit: float = TIME_LIMIT,
    expected_exit: int | None = 0,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Runs `command` with this interpreter's programs first on PATH; fails unless it ends as expected.

    expected_exit: None accepts any exit code.
    """
    with started(command, cwd, **environment) as process:
        try:
            stdout, stderr = process.communicate(timeout=time_limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # launchers end their ranks on this one
            try:
                stdout, stderr = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
            pytest.fail(f"{command} took more than {time_limit} s\n{stdout}\n{stderr}")
    if expected_exit is not None:
        assert process.returncode == expected_exit, f"{command}\n{stdout}\n{stderr}"
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def run_example(
    launcher: str, script: str, *arguments: str, data: Path, expected_exit: int | None = 0
) -> subprocess.CompletedProcess[str]:
    """Runs a script of examples/ on the CPU: by itself, or with 2 ranks under horovodrun or mpirun."""
    prefix = {
        "python": ["python"],
        "horovodrun": job(2),
        "mpirun": ["mpirun", "-n", "2", "python"],
    }[launcher]
    return run(
        [*prefix, script, "--no-cuda", *arguments], expected_exit=expected_exit, MNIST_DATA_DIR=str(data)
    )
