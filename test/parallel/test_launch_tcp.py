"""Ranks that horovodrun's agents start on this host, without MPI: their ends, and no process left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from launching import fresh_mark, horovodrun, processes_of

import horovod
from horovod.runner import errors

ALLREDUCE = """
import torch, horovod.torch as hvd
for time in range(2):
    hvd.init()
    total = hvd.allreduce(torch.ones(2) * (hvd.rank() + 1), op=hvd.Sum)
    print(time, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.mpi_enabled(), total.tolist(), flush=True)
    hvd.shutdown()
"""


@pytest.mark.quick
def test_ranks_meet_and_meet_again() -> None:
    result = horovodrun("-np", "2", sys.executable, "-c", ALLREDUCE)
    assert result.returncode == 0, result.stderr
    said = [f"[{rank}]<stdout>:{time} {rank} 2 {rank} False [3.0, 3.0]" for time in (0, 1) for rank in (0, 1)]
    assert sorted(result.stdout.splitlines()) == sorted(said)


def test_what_a_rank_is_told() -> None:
    code = "import json, os; print(json.dumps({n: t for n, t in os.environ.items() if n[:8] == 'HOROVOD_'}))"
    result = horovodrun("-np", "2", sys.executable, "-c", code, OMPI_COMM_WORLD_RANK="7", PMI_RANK="7")
    told = [json.loads(line.partition(":")[2]) for line in sorted(result.stdout.splitlines())]
    for rank in (0, 1):
        assert {
            name: told[rank][f"HOROVOD_{name}"] for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
        } == {
            "RANK": str(rank),
            "SIZE": "2",
            "LOCAL_RANK": str(rank),
            "LOCAL_SIZE": "2",
        }
        assert (told[rank]["HOROVOD_CROSS_RANK"], told[rank]["HOROVOD_CROSS_SIZE"]) == ("0", "1")
    assert len(told[0]["HOROVOD_SECRET"]) == 64 and told[0]["HOROVOD_SECRET"] == told[1]["HOROVOD_SECRET"]


def test_a_rank_that_ends_with_0_leaves_others_alone() -> None:
    command = ["sh", "-c", "[ $HOROVOD_RANK = 0 ] || { sleep 1; echo last; }"]
    result = horovodrun("-np", "2", *command, limit=20)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[1]<stdout>:last\n", "")


def test_options_of_mpirun_are_refused() -> None:
    for option, error in (
        (["--mpi-args=--map-by numa"], errors.option_of_mpirun(option="--mpi-args")),
        (["--launcher", "tcp", "--mpi"], errors.launchers_contradict()),
    ):
        result = horovodrun("-np", "2", *option, "true")
        assert (result.returncode, result.stderr) == (2, f"horovodrun: {error}\n")


def test_long_output_of_4_ranks_is_whole() -> None:
    """64 MiB."""
    code = "for i in range(16384): print(f'{i:01023d}')"
    result = horovodrun("-np", "4", sys.executable, "-c", code, limit=200)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    for rank in range(4):
        begin = f"[{rank}]<stdout>:"
        own = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
        assert own == [f"{i:01023d}" for i in range(16384)]
    assert len(lines) == 4 * 16384


def test_a_function() -> None:
    mark = fresh_mark()
    call = "horovod.run(lambda: os.environ['HOROVOD_RANK'], num_proc=2)"
    code = f"import horovod, os; print({call})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=launching.environment(mark),
    )
    assert done.stdout == "['0', '1']\n", done.stderr
    assert not processes_of(mark)


def test_ddp_tells_ranks_their_place() -> None:
    code = (
        "import os; print(*(os.environ[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE')))"
    )
    result = horovodrun("--ddp", "-np", "2", sys.executable, "-c", code)
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:0 2 0 2", "[1]<stdout>:1 2 1 2"], result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(number: signal.Signals) -> None:
    """The whole group gets the signal, as on Ctrl-C: ranks receive it once, and have time to clean up."""
    code = """
import signal, sys, time
def heed(number, frame):
    print("told", number, flush=True)
    time.sleep(0.5)
    print("cleaned up", flush=True)
    sys.exit(0)
signal.signal(signal.SIGINT, heed)
signal.signal(signal.SIGTERM, heed)
print("here", flush=True)
time.sleep(300)
"""
    mark = fresh_mark()
    job = launching.start(["-np", "2", sys.executable, "-c", code], mark, is_apart=True)
    assert job.stdout is not None
    for _ in range(2):
        job.stdout.readline()
    os.killpg(job.pid, number)
    out, err = job.communicate(timeout=20)
    for rank in (0, 1):
        own = [line for line in out.splitlines() if line.startswith(f"[{rank}]")]
        assert own == [f"[{rank}]<stdout>:told {int(number)}", f"[{rank}]<stdout>:cleaned up"]
    assert job.returncode == 128 + number and f"stopped by {number.name}, all ranks were ended" in err
    launching.all_end(mark, 5)


def test_the_default_without_an_mpi(tmp_path: Path) -> None:
    """A build without MPI has another build record, and starts jobs."""
    package = Path(horovod.__file__).parent
    without = shutil.ignore_patterns("libhorovod_mpi*", "native", "__pycache__")
    shutil.copytree(package, tmp_path / "horovod", ignore=without)
    record = json.loads((package / "build_info.json").read_text())
    (tmp_path / "horovod" / "build_info.json").write_text(json.dumps({**record, "mpi": {}}))
    environment = launching.environment("no-mpi", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")

    def started(*words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "horovod.runner", "-np", "2", *words]
        return subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment)

    done = started(sys.executable, "-c", ALLREDUCE)
    assert "[1]<stdout>:1 1 2 1 False [3.0, 3.0]\n" in done.stdout, done.stderr
    asked = started("--mpi", "true")
    assert (asked.returncode, asked.stderr) == (2, f"horovodrun: {errors.built_without_mpi()}\n")
