"""Start programs as the ranks of an MPI job, for tests: under a time limit, on any number of cores.

    run_ranks(np, argv, timeout, env) -> CompletedProcess    any program: argv follows `mpirun -np N`
    run_test_file(np, file)                                  a pytest file inside every rank
    run_test_files(np, files)                                several, in one job

ddp_jobs.py does the same for ranks that torchrun starts.

Such files live in test/parallel/ranks. They are plain pytest files that use horovod.torch as one of two or
four ranks; pytest collects them inside a rank only (see conftest.py). To debug one by hand:

    mpirun -np 2 python -m pytest test/parallel/ranks/test_contract.py
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from horovod.common.build_info import build_info
from horovod.common.mpi_here import mpi_here
from horovod.runner import launchers

Run = Callable[[list[str], dict[str, str]], "subprocess.CompletedProcess[str]"]
Shown = Callable[["subprocess.CompletedProcess[str]", list[str]], str]
TIME_LIMIT = 120.0  # seconds, for one job
TIMED_OUT = 124  # the exit code of a passed time limit, as in coreutils' timeout
OPEN_MPI_5 = [
    "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
    "--mca", "pml", "ob1", "--mca", "btl", "self,sm,tcp", "--mca", "mpi_yield_when_idle", "1",
]  # fmt: skip


def mpirun() -> str:
    """Return the mpirun of the MPI that the package uses; skip the test if there is none."""
    mpi = mpi_here(build_info().mpi)
    if not mpi.built:
        pytest.skip("horovod was built without MPI, or there is none here")
    program = shutil.which(mpi.mpirun_path())
    if program is None:
        pytest.skip(f"there is no {mpi.mpirun_path()}")
    return program


def run_ranks(
    np: int, argv: list[str], timeout: float = TIME_LIMIT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `mpirun -np {np} {argv}`. stdout has the output and errors of all ranks.

    Args:
        timeout: seconds after which the job is ended; the exit code is then 124.
        env: added to this process' environment. Ranks compute with one thread unless it says otherwise.
    """
    program = mpirun()
    flags = OPEN_MPI_5 if launchers.installed_flavour(program) == "Open MPI 5" else []
    return run_job([program, *flags, "-np", str(np), *argv], timeout, env)


def run_job(
    command: list[str], timeout: float = TIME_LIMIT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command of any launcher that ends its ranks on SIGTERM; otherwise like run_ranks."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | (env or {})
    with tempfile.TemporaryFile("w+") as output:
        # A file, not a pipe: a rank that outlives its launcher would keep a pipe open, and block the test.
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=environment,
            start_new_session=True,
        )
        try:
            code = process.wait(timeout)
        except subprocess.TimeoutExpired:
            code = TIMED_OUT
            _end(process)
        output.seek(0)
        text = output.read()
    if code == TIMED_OUT:
        text += f"\nThe job was ended: it ran longer than {timeout} seconds.\n"
    return subprocess.CompletedProcess(command, code, stdout=text)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)  # which launchers pass on to the ranks
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_test_file(np: int, file: Path, timeout: float = TIME_LIMIT, **env: str) -> None:
    """Run a pytest file inside each of `np` ranks; fail unless every rank passed."""
    run_test_files(np, [file], timeout, **env)


def run_test_files(np: int, files: Sequence[Path], timeout: float = TIME_LIMIT, **env: str) -> None:
    """Run pytest files, one after the other in one job; see run_test_file."""

    def run(argv: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return run_ranks(np, [sys.executable, *argv], timeout, more | env)

    fail_unless_passed(np, files, timeout, run, lambda job, failed: job.stdout)


def fail_unless_passed(np: int, files: Sequence[Path], timeout: float, run: Run, shown: Shown) -> None:
    """Make ``run`` start pytest with these words and variables in each rank; fail unless all ranks passed.

    A launcher's exit code alone is no proof: each rank leaves pytest's in a folder. ``shown`` selects the
    output of a failed job, given the ranks that failed by themselves.
    """
    with tempfile.TemporaryDirectory() as reports:
        argv = ["-m", "pytest", "-x", "-q", "--tb=short", "-p", "no:cacheprovider", "--color=no"]
        argv += [*map(str, files), "-o", f"faulthandler_timeout={max(timeout - 30, 20)}"]
        job = run(argv, {"HOROVOD_TEST_REPORTS": reports})
        said = {path.name: path.read_text() for path in Path(reports).iterdir()}
    if job.returncode != 0 or said != {str(rank): "0" for rank in range(np)}:
        names = ", ".join(file.name for file in files)
        failed = sorted(rank for rank, code in said.items() if code != "0")
        pytest.fail(
            f"{names} with {np} ranks: the launcher ended with {job.returncode}; pytest's exit code by rank: "
            f"{said}\n{shown(job, failed)}",
            pytrace=False,
        )
