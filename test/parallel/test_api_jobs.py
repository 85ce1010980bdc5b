"""Messages and results of a Horovod job when ranks are late: one job that tries several settings."""

import re
import sys
from pathlib import Path

import pytest
from rank_jobs import run_ranks

# Phase: settings, and the seconds by which rank 1 is late. The last one ends the job.
PROGRAM = """
import os, sys, time, torch
import horovod.torch as hvd

PHASES = {
    "warned": (4.0, {"CHECK_TIME": "0.5"}),
    "off": (1.5, {"CHECK_TIME": "0.5", "CHECK_DISABLE": "1"}),
    "ignored": (2.0, {"CHECK_TIME": "1", "SHUTDOWN_TIME": "0.5"}),
    "short": (0.3, {}),
    "ended": (4.0, {"CHECK_TIME": "0.5", "SHUTDOWN_TIME": "1"}),
}

def start():
    return [hvd.allreduce_async(torch.ones(3), name="pear")] + [
        hvd.allgather_async(torch.ones(3), name=f"apple.{i}") for i in range(2)
    ]

for phase, (late, settings) in PHASES.items():
    for name in ("CHECK_TIME", "SHUTDOWN_TIME", "CHECK_DISABLE"):
        suffix = "" if name.endswith("DISABLE") else "_SECONDS"
        os.environ.pop(f"HOROVOD_STALL_{name}{suffix}", None)
        if name in settings:
            os.environ[f"HOROVOD_STALL_{name}{suffix}"] = settings[name]
    if os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK")) == "0":
        print("== " + phase, file=sys.stderr, flush=True)  # where the core's warnings go
    hvd.init()
    try:
        handles = [] if hvd.rank() == 1 else start()
        if hvd.rank() == 1:
            time.sleep(late)
            handles = start()
        for handle in handles:
            hvd.synchronize(handle)
        hvd.barrier()
        end = "went on"
    except hvd.HorovodInternalError as error:
        end = "was stopped: " + str(error)
    if hvd.rank() == 0:
        print(end, file=sys.stderr, flush=True)
    hvd.shutdown()
"""


@pytest.mark.parametrize("np", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_stalls(np: int, tmp_path: Path) -> None:
    program = tmp_path / "stalls.py"
    program.write_text(PROGRAM)
    job = run_ranks(np, [sys.executable, str(program)], timeout=80)
    assert job.returncode != 0, "ranks that leave a broken job fail"
    said = dict(re.findall(r"== (\w+)\n(.*?)(?=== |\Z)", job.stdout, re.DOTALL))
    assert set(said) == {"warned", "off", "ignored", "short", "ended"}, job.stdout

    warned = said["warned"]
    missing = warned[warned.index("Missing ranks") :]
    assert re.search(r"^1: .*allgather\.apple\.0.*allreduce\.pear", missing, re.MULTILINE), warned
    assert not re.search(r"^[023]", missing, re.MULTILINE), "who is there is not missing"
    assert "went on" in warned

    assert "Missing ranks" not in said["off"] and "went on" in said["off"]
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS" in said["ignored"] and "went on" in said["ignored"]
    assert "Missing ranks" not in said["short"] and "went on" in said["short"]

    assert re.search(r"^1!: ", said["ended"], re.MULTILINE) and "was stopped: " in said["ended"], said[
        "ended"
    ]
