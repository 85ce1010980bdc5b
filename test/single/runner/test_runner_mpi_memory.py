"""What Open MPI leaves in /dev/shm when mpirun and a rank are killed, the rank perhaps inside MPI_Init."""

from __future__ import annotations

import mmap
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from horovod.runner import rank as wrapper
from horovod.runner.mpi_memory import remove_abandoned

pytestmark = pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="needs /dev/shm")
LOCAL_RANK = "7001"  # nobody else's


@pytest.fixture
def segment() -> Iterator[Path]:
    """The name of a file such as Open MPI makes for a rank of a job."""
    name = f"sm_segment.{os.uname().nodename}.{os.geteuid()}.{secrets.token_hex(4)}.{LOCAL_RANK}"
    path = Path("/dev/shm", name)
    yield path
    path.unlink(missing_ok=True)


def test_only_what_nobody_has_mapped_goes(segment: Path) -> None:
    segment.write_bytes(bytes(4096))
    with segment.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        remove_abandoned(since=0)
        assert segment.exists()
    remove_abandoned(since=time.time() + 60)  # it was there before
    assert segment.exists()
    remove_abandoned(since=time.time() - 60)
    assert not segment.exists()


def test_a_wrapper_whose_mpirun_is_gone_removes_its_ranks_file(segment: Path) -> None:
    line = [sys.executable, "-I", "-S", wrapper.__file__, "0123456789ab", "/"]
    make = f"head -c 4096 /dev/zero >{segment}; echo made; sleep 300"
    environment = {**os.environ, "OMPI_COMM_WORLD_RANK": "3"}
    mpirun = subprocess.Popen(
        ["sh", "-c", '"$@" & wait', "sh", *line, "sh", "-c", make],
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert mpirun.stderr is not None
    written = b""
    while b"made" not in written:
        written += os.read(mpirun.stderr.fileno(), 65536)
    assert segment.exists()
    mpirun.kill()
    mpirun.stderr.read()  # to the end of the wrapper, which has it too
    assert not segment.exists()
