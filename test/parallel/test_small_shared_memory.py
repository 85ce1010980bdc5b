"""Jobs with a small /dev/shm, as in a container: each in a mount namespace with its own /dev/shm."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import environment, needs_mpirun

_MOUNT = 'mount -t tmpfs -o size="$1" shm /dev/shm; shift; exec "$@"'
APART = ["unshare", "--mount", "sh", "-ec", _MOUNT, "sh"]
if subprocess.run([*APART, "1m", "true"], capture_output=True, check=False).returncode != 0:
    pytest.skip("a /dev/shm of one's own needs root, and unshare of util-linux", allow_module_level=True)

# Rank 0 fills /dev/shm, as workers of a DataLoader do, after init() and before the operation.
PROGRAM = """
import sys
import horovod.torch as hvd, torch

try:
    hvd.init()
except ValueError as error:
    print(f"refused: {error}")
    sys.exit(3)
if hvd.rank() == 0:
    with open("/dev/shm/batches", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError as full:
            print(f"{full.strerror}, at {file.tell() >> 20} MiB")
hvd.barrier()
total = hvd.allreduce(torch.full((25_000_000,), hvd.rank() + 1.0), op=hvd.Sum)
assert bool((total == 3).all())
print("added 100 MB")
"""


MPI = ("--launcher", "mpi")


def job(size: str, folder: Path, *options: str, **more: str) -> "subprocess.CompletedProcess[str]":
    (folder / "program.py").write_text(PROGRAM)
    words = [sys.executable, "-m", "horovod.runner", *options, "-np", "2", sys.executable]
    words.append(str(folder / "program.py"))
    return subprocess.run(
        [*APART, size, *words],
        env=environment("small", **more),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.mark.quick
def test_ranks_of_agents_need_none_of_it(tmp_path: Path) -> None:
    """Their memory has no file in /dev/shm."""
    done = job("1m", tmp_path, HOROVOD_TRANSPORT="shared_memory")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("added 100 MB") == 2


@needs_mpirun
def test_dockers_64_mb_are_enough_and_stay_so_when_others_fill_them(tmp_path: Path) -> None:
    done = job("64m", tmp_path, *MPI)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("added 100 MB") == 2
    (left,) = re.findall(r"No space left on device, at (\d+) MiB", done.stdout)
    assert int(left) >= 64 - 16, "the ranks take little of it"


@needs_mpirun
def test_every_rank_says_what_is_too_small_and_what_to_do(tmp_path: Path) -> None:
    done = job("8m", tmp_path, *MPI)
    assert done.returncode == 3, done.stderr
    refusals = re.findall(r"refused: (.*)", done.stdout)
    assert len(refusals) == 2 and len(set(refusals)) == 1, done.stdout + done.stderr
    found = re.fullmatch(
        r"/dev/shm of \S+ is too small: (.*) MiB of its 8\.0 MiB are free, and its 2 ranks need (.*) MiB "
        r"there to exchange gradients\. Enlarge it \(in Docker `docker run --shm-size=1g \.\.\.`, .*\), or "
        r"set HOROVOD_TRANSPORT=mpi or tcp, which are slower",
        refusals[0],
    )
    assert found and float(found[1]) < float(found[2]) < 12


@needs_mpirun
def test_the_way_without_shared_memory(tmp_path: Path) -> None:
    done = job("1m", tmp_path, *MPI, HOROVOD_TRANSPORT="mpi")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("added 100 MB") == 2
