"""Processes that ranks start or fork: none of them is a rank, and the job continues whatever they try."""

import re
import sys
from pathlib import Path

from launching import horovodrun

PAGE = Path(__file__).resolve().parents[2] / "docs" / "troubleshooting.md"

# A fork of each rank tries calls that could hang, or end the other ranks; then a program that it starts does.
PROGRAM = """
import os, subprocess, sys, torch
import horovod.torch as hvd

JOIN = "from horovod.common.basics import basics; basics.init(); print('joined', basics.size())"

def refused(call):
    try:
        call()
    except hvd.HorovodInternalError as error:
        return error

def started(*command):
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100)
    return (ended.stdout + ended.stderr).strip().splitlines()[-1]

hvd.init()
rank, size = hvd.rank(), hvd.size()
pending = hvd.allreduce_async(torch.ones(3), name=f"only on {rank}")
done = hvd.allreduce_async(torch.ones(3), name="apple", op=hvd.Sum)
hvd.barrier()

child = os.fork()
if child == 0:
    assert (hvd.rank(), hvd.size(), hvd.local_rank()) == (rank, size, rank) and hvd.is_initialized()
    assert all(map(refused, [
        lambda: hvd.synchronize(pending), lambda: hvd.poll(pending), lambda: hvd.synchronize(done),
        hvd.barrier, hvd.init, hvd.metrics, lambda: hvd.allreduce(torch.ones(2)), hvd.join,
    ]))
    hvd.shutdown()
    assert refused(hvd.init) and refused(lambda: hvd.synchronize(pending))
    print(f"<the child of {rank}: HorovodInternalError: {refused(hvd.barrier)}>", flush=True)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0

print(f"<{rank} as a child: {started(sys.executable, '-c', JOIN)}>")
if rank == 0:
    names = ["-u" + name for name in ("HOROVOD_RANK", "HOROVOD_SIZE")]
    print(f"<unset: {started('env', *names, sys.executable, '-c', JOIN)}>")
    run = [sys.executable, "-m", "horovod.runner", "-np", "1", sys.executable, "-c", JOIN]
    print(f"<a job: {started(*run)}>")
assert hvd.synchronize(done).sum() == 3 * size and hvd.allreduce(torch.ones(3), op=hvd.Sum).sum() == 3 * size
"""


def test_children_of_ranks_are_no_ranks() -> None:
    job = horovodrun("-np", "2", sys.executable, "-c", PROGRAM, limit=110)
    assert job.returncode == 0, job.stderr
    assert "<the child of 0: HorovodInternalError: process" in job.stdout
    assert "CannotStart: process " in job.stdout
    page = re.sub(r"process \d+", "process N", PAGE.read_text())
    for said in re.findall(r"<(?:the child of 1|1 as a child): (.*)>", job.stdout):
        assert re.sub(r"process \d+", "process N", said) in page
    assert job.stdout.count("<the child of 1: ") == job.stdout.count("<1 as a child: ") == 1
    assert "<unset: joined 1>" in job.stdout and "<a job: [0]<stdout>:joined 1>" in job.stdout
