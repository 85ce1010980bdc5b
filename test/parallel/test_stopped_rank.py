"""Ranks that a signal stops (SIGSTOP): those that wait for them say so, and end at the limit."""

import re
import sys
from pathlib import Path

from rank_jobs import TIMED_OUT, run_ranks

PROGRAM = Path(__file__).with_name("stopped_rank.py")
LIMITS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1.5", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
STOPPED = r"\(process \d+, which is stopped: by SIGSTOP, Ctrl-Z or a scheduler\)"
ENDS = "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=3 ends such waiting"


def test_who_waits_for_a_stopped_rank_warns_and_ends(tmp_path: Path) -> None:
    """Inside an operation, over shared memory and over MPI, and for the answer of rank 0."""
    job = run_ranks(6, [sys.executable, str(PROGRAM), str(tmp_path)], env=LIMITS)
    assert job.returncode not in (0, TIMED_OUT), job.stdout
    assert job.stdout.count(" s: ") == 3, job.stdout
    told = dict(re.findall(r"<(\w+): [\d.]+ s: (.*?)>", job.stdout))
    inside = r"'x\d+', 33554432 bytes, failed on rank 0: rank 0 lost rank 1"
    while_it = r": no sign of life for \d s, while rank 0 carries out 'x\d+', 33554432 bytes; "
    assert re.match(f"{inside} {STOPPED}{while_it}{ENDS}", told["auto"]), job.stdout
    assert re.match(f"{inside}{while_it}{ENDS}", told["mpi"]), job.stdout
    waits = "while rank 1 waits for rank 0, which coordinates all, to answer for 'x0'"
    assert re.match(rf"rank 1 lost rank 0: no sign of life for \d s, {waits}; {ENDS}", told["answer"]), (
        job.stdout
    )
    for warning in (
        rf"of rank 1 {STOPPED} for \d s, while rank 0 carries out",
        rf"of rank 0 for \d s, {waits}",
    ):
        said = rf"W liveness_monitor.cc:\d+\] \[\d\]: no sign of life {warning}"
        assert re.search(said, job.stdout), job.stdout
