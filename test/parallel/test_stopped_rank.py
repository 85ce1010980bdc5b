"""Ranks that a signal stops (SIGSTOP): the ranks that wait for them report it, and end at the limit."""

import re
import sys
from pathlib import Path

from rank_jobs import TIMED_OUT, run_ranks

PROGRAM = Path(__file__).with_name("stopped_rank.py")
LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1.5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
STOPPED = r"\(process \d+, which is stopped: by SIGSTOP"
ENDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3"


def test_who_waits_for_a_stopped_rank_warns_and_ends(tmp_path: Path) -> None:
    """It stops inside an operation, over shared memory and over MPI, and when rank 0's answer is due."""
    job = run_ranks(6, [sys.executable, str(PROGRAM), str(tmp_path)], env=LIMITS)
    assert job.returncode not in (0, TIMED_OUT), job.stdout
    told = dict(re.findall(r"<(\w+): [\d.]+ s: (.*?)>", job.stdout))
    assert len(told) == 3, job.stdout
    inside = r"LostRank operation_failed \[1\] 'x\d+', 33554432 bytes, failed on rank 0: "
    assert re.match(f"{inside}.*{STOPPED}.*{ENDS}", told["auto"]), job.stdout
    assert re.match(rf"{inside}.* \d s, while rank 0 .*{ENDS}", told["mpi"]), job.stdout
    assert re.match(rf"LostRank silent \[0\] .* \d s, while rank 1 .* 'x0'; {ENDS}", told["answer"]), (
        job.stdout
    )
    warned = [line for line in job.stdout.splitlines() if "W liveness_monitor.cc:" in line]
    for warning in (rf"of rank 1 {STOPPED}.* for \d s, while rank 0 ", r"of rank 0 for \d s, .* 'x0'"):
        assert any(re.search(warning, line) for line in warned), job.stdout
