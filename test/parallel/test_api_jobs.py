"""What a Horovod job says when ranks do not come: jobs of their own, because settings and ends are tested."""

import sys
from pathlib import Path

import pytest
from rank_jobs import run_ranks

STALLED = """
import sys, time, torch
import horovod.torch as hvd
hvd.init()
if hvd.rank() != 1:
    handle = hvd.allreduce_async(torch.ones(3), name="pear")
    others = [hvd.allgather_async(torch.ones(3), name=f"apple.{i}") for i in range(2)]
time.sleep(float(sys.argv[1]))
try:
    if hvd.rank() == 1:
        handle = hvd.allreduce_async(torch.ones(3), name="pear")
        others = [hvd.allgather_async(torch.ones(3), name=f"apple.{i}") for i in range(2)]
    for one in [handle, *others]:
        hvd.synchronize(one)
    print("rank", hvd.rank(), "went on", flush=True)
except hvd.HorovodInternalError as error:
    print("rank", hvd.rank(), "was stopped", flush=True)
"""


def stalled(seconds: float, tmp_path: Path, np: int = 2, fails: bool = False, **env: str) -> str:
    """Output of a job whose rank 1 comes `seconds` late. It fails when ranks leave a broken job."""
    program = tmp_path / "stalled.py"
    program.write_text(STALLED)
    job = run_ranks(np, [sys.executable, str(program), str(seconds)], timeout=60, env=env)
    assert (job.returncode != 0) == fails, job.stdout
    return job.stdout


@pytest.mark.parametrize("np", [2, 4])
def test_stalls_are_warned_about(np: int, tmp_path: Path) -> None:
    """One warning names the ranks that are missing and what they are missed for; the job goes on."""
    said = stalled(3, tmp_path, np, HOROVOD_STALL_CHECK_TIME_SECONDS="1")
    assert "Missing ranks" in said and "allreduce.pear" in said and "allgather.apple.0" in said
    assert said.count("went on") == np
    missing = said[said.index("Missing ranks") :]
    assert "\n1" in missing or " 1" in missing


def test_stall_check_can_be_switched_off(tmp_path: Path) -> None:
    said = stalled(2.5, tmp_path, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_CHECK_DISABLE="1")
    assert "Missing ranks" not in said and said.count("went on") == 2


def test_stalls_can_end_the_job(tmp_path: Path) -> None:
    said = stalled(
        6, tmp_path, fails=True, HOROVOD_STALL_CHECK_TIME_SECONDS="1", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="2"
    )
    assert "Missing ranks" in said and "rank 0 was stopped" in said and "went on" not in said


def test_a_shutdown_time_below_the_warning_time_is_ignored_with_a_warning(tmp_path: Path) -> None:
    said = stalled(3, tmp_path, HOROVOD_STALL_CHECK_TIME_SECONDS="2", HOROVOD_STALL_SHUTDOWN_TIME_SECONDS="1")
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in said and said.count("went on") == 2


def test_short_waits_are_not_stalls(tmp_path: Path) -> None:
    said = stalled(0.5, tmp_path)
    assert "Missing ranks" not in said and said.count("went on") == 2
