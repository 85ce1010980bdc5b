"""Start programs as torchrun does, for tests of native DistributedDataParallel: gloo ranks of one machine.

    run_torchrun(np, argv, timeout, env) -> CompletedProcess    any program: argv follows `torchrun`'s options
    run_ddp_test_files(np, files)                               pytest files inside every rank, in one job
    run_separately(np, argv, timeout, env) -> one of each rank  any program; a rank's end ends no other rank

Such files live in test/parallel/ddp_ranks. They are plain pytest files that use torch.distributed as one of
one to four ranks; pytest collects them inside a rank only (see conftest.py). To debug one by hand:

    python -m torch.distributed.run --nproc-per-node 2 -m pytest test/parallel/ddp_ranks/test_reducer.py
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import busy
import launching
from rank_jobs import TIME_LIMIT, TIMED_OUT, fail_unless_passed, run_job

__all__ = ["run_ddp_test_files", "run_separately", "run_torchrun"]

MOST_LINES = 150  # printed of a rank that failed


def run_torchrun(
    np: int, argv: list[str], timeout: float = TIME_LIMIT, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `torchrun --standalone --nproc-per-node {np} {argv}`. stdout has the output of all ranks, mixed.

    Args:
        argv: options of torchrun, the script and its arguments; "-m", "name" runs a module.
        timeout: seconds after which the job is ended; the exit code is then 124.
        env: added to this process' environment. Ranks compute with one thread unless it says otherwise.
    """
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(np)]
    return run_job([*torchrun, *argv], timeout, env)


def run_ddp_test_files(np: int, files: Sequence[Path], timeout: float = TIME_LIMIT, **env: str) -> None:
    """Run pytest files one after the other inside each of `np` ranks; fail unless all ranks passed.

    A failure prints the output of the ranks that failed by themselves, or of all ranks if none did, because
    torchrun ends the others.
    """
    with tempfile.TemporaryDirectory() as logs:

        def run(argv: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
            words = ["--redirects", "3", "--log-dir", logs, *argv, "-p", "no:logging"]
            return run_torchrun(np, words, timeout, more | env)

        def shown(job: subprocess.CompletedProcess[str], failed: list[str]) -> str:
            outputs = (_output(Path(logs), rank) for rank in failed or map(str, range(np)))
            return "".join(outputs) or job.stdout

        fail_unless_passed(np, files, timeout, run, shown)


def run_separately(
    np: int, argv: list[str], timeout: float = TIME_LIMIT, env: dict[str, str] | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """Run `{argv}` as ranks without a launcher, which would end the others when one ends.

    Returns:
        By rank, the exit code (124: ended because it ran longer than ``timeout`` seconds), and in stdout
        the rank's stdout and stderr.
    """
    port = launching.free_port()
    job = os.environ | {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    job |= {"WORLD_SIZE": str(np), "LOCAL_WORLD_SIZE": str(np)} | (env or {})
    with tempfile.TemporaryDirectory() as folder:
        outputs = [Path(folder, str(rank)) for rank in range(np)]
        ranks = []
        for rank, output in enumerate(outputs):
            own = job | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            with output.open("w") as file:
                process = subprocess.Popen(
                    argv, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=own
                )
            ranks.append(process)
        deadline = busy.limit(timeout)
        codes = [_code_of(process, deadline) for process in ranks]
        return [
            subprocess.CompletedProcess(argv, code, stdout=output.read_text(errors="replace"))
            for code, output in zip(codes, outputs, strict=True)
        ]


def _code_of(process: subprocess.Popen[bytes], deadline: float) -> int:
    try:
        return process.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return TIMED_OUT


def _output(logs: Path, rank: str) -> str:
    """Return a rank's output, under a heading: torchrun keeps it in LOGS/job/attempt/rank/."""
    text = "".join(
        path.read_text(errors="replace")
        for name in ("stdout.log", "stderr.log")
        for path in sorted(logs.glob(f"*/attempt_*/{rank}/{name}"))
    )
    lines = text.splitlines()[-MOST_LINES:]
    return "\n".join([f"\n\n======== rank {rank} ========", *lines])
