"""horovodrun --launcher tcp on this host: ranks without an MPI, their ends, and that nothing is left."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import launching
import pytest
from launching import fresh_mark, horovodrun, processes_of

import horovod

HOST = os.uname().nodename
TCP = ("--launcher", "tcp")
ALLREDUCE = """
import torch, horovod.torch as hvd
for time in range(2):
    hvd.init()
    total = hvd.allreduce(torch.ones(2) * (hvd.rank() + 1), op=hvd.Sum)
    print(time, hvd.rank(), hvd.size(), hvd.local_rank(), hvd.mpi_enabled(), total.tolist(), flush=True)
    hvd.shutdown()
"""


def only_rank(rank: int, action: str) -> list[str]:
    """A shell command: one rank does something, the others would wait for minutes."""
    return ["sh", "-c", f"if [ $HOROVOD_RANK = {rank} ]; then sleep 0.2; {action}; else sleep 300; fi"]


@pytest.mark.quick
def test_ranks_meet_and_meet_again() -> None:
    result = horovodrun(*TCP, "-np", "2", sys.executable, "-c", ALLREDUCE)
    assert result.returncode == 0, result.stderr
    said = [f"[{rank}]<stdout>:{time} {rank} 2 {rank} False [3.0, 3.0]" for time in (0, 1) for rank in (0, 1)]
    assert sorted(result.stdout.splitlines()) == sorted(said)


def test_what_a_rank_is_told() -> None:
    code = "import json, os; print(json.dumps({n: t for n, t in os.environ.items() if n[:8] == 'HOROVOD_'}))"
    result = horovodrun(*TCP, "-np", "2", sys.executable, "-c", code, OMPI_COMM_WORLD_RANK="7", PMI_RANK="7")
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


def test_the_exit_code_and_the_blame() -> None:
    result = horovodrun(*TCP, "-np", "3", *only_rank(1, "echo oh >&2; exit 3"), limit=20)
    said = f"horovodrun: rank 1 on host {HOST} exited with code 3; the other ranks were ended"
    assert (result.returncode, result.stderr) == (3, f"[1]<stderr>:oh\n{said}\n")


def test_a_rank_that_ends_with_0_leaves_others_alone() -> None:
    command = ["sh", "-c", "[ $HOROVOD_RANK = 0 ] || { sleep 1; echo last; }"]
    result = horovodrun(*TCP, "-np", "2", *command, limit=20)
    assert (result.returncode, result.stdout, result.stderr) == (0, "[1]<stdout>:last\n", "")


def test_a_command_that_is_not_there() -> None:
    result = horovodrun(*TCP, "-np", "2", "no-such-command", limit=20)
    assert (
        result.returncode == 127
        and "could not run: the command no-such-command was not found" in result.stderr
    )


def test_options_of_mpirun_are_refused() -> None:
    result = horovodrun(*TCP, "-np", "2", "--mpi-args=--map-by numa", "true")
    assert result.returncode == 2 and "--mpi-args is for mpirun" in result.stderr
    result = horovodrun(*TCP, "-np", "2", "--mpi", "true")
    assert result.returncode == 2 and "leave out all but one" in result.stderr


@pytest.mark.quick
def test_standard_input_and_its_end(tmp_path: Path) -> None:
    """Of rank 0 alone, and all of it, whatever the bytes."""
    data = os.urandom(3_000_000)
    (tmp_path / "in").write_bytes(data)
    words = [sys.executable, "-m", "horovod.runner", *TCP, "-np", "2", "sha256sum"]
    with (tmp_path / "in").open("rb") as file:
        done = subprocess.run(
            words, stdin=file, capture_output=True, env=launching.environment("input"), timeout=60, check=True
        )
    empty = hashlib.sha256(b"").hexdigest()
    assert sorted(done.stdout.decode().splitlines()) == [
        f"[0]<stdout>:{hashlib.sha256(data).hexdigest()}  -",
        f"[1]<stdout>:{empty}  -",
    ]


def test_long_output_of_4_ranks_is_whole() -> None:
    """64 MiB."""
    code = "for i in range(16384): print(f'{i:01023d}')"
    result = horovodrun(*TCP, "-np", "4", sys.executable, "-c", code, limit=200)
    assert result.returncode == 0
    lines = result.stdout.splitlines()
    for rank in range(4):
        begin = f"[{rank}]<stdout>:"
        own = [line.removeprefix(begin) for line in lines if line.startswith(begin)]
        assert own == [f"{i:01023d}" for i in range(16384)]
    assert len(lines) == 4 * 16384


def test_echo_into_cat_ends() -> None:
    words = [sys.executable, "-m", "horovod.runner", *TCP, "-np", "2", "cat"]
    done = subprocess.run(
        words, input=b"x\n", capture_output=True, env=launching.environment("echo"), timeout=60, check=True
    )
    assert done.stdout == b"[0]<stdout>:x\n"


def test_a_function() -> None:
    mark = fresh_mark()
    call = "horovod.run(lambda: os.environ['HOROVOD_RANK'], num_proc=2, use_gloo=True)"
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
    result = horovodrun(*TCP, "--ddp", "-np", "2", sys.executable, "-c", code)
    assert sorted(result.stdout.splitlines()) == ["[0]<stdout>:0 2 0 2", "[1]<stdout>:1 2 1 2"], result.stderr


WAITING = ["sh", "-c", "trap '' TERM INT; echo here; sleep 300 & wait; wait"]


def pid_of(mark: str, word: str) -> int:
    """Of the one process of a job whose command line has this word."""
    found = [line for line in processes_of(mark) if word in line.split(" -c ")[0]]
    assert len(found) == 1, found
    return int(found[0].partition(":")[0])


def all_end(mark: str, seconds: float) -> float:
    """Seconds until no process of the job is left."""
    began = time.monotonic()
    while left := processes_of(mark):
        assert time.monotonic() - began < seconds, left
        time.sleep(0.05)
    return time.monotonic() - began


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("agents/driver.py", "the driver of the job was killed by signal 9 (SIGKILL)"),
        ("agents/agent.py", f"ranks 0, 1 on host {HOST} were lost"),
        ("horovod.runner", ""),
    ],
)
def test_nothing_outlives_what_is_killed(word: str, said: str) -> None:
    """Ranks that heed no signal, and have children, too."""
    mark = fresh_mark()
    job = launching.start([*TCP, "-np", "2", *WAITING], mark)
    assert job.stdout is not None
    assert [job.stdout.readline()[3:] for _ in range(2)] == ["<stdout>:here\n"] * 2
    os.kill(pid_of(mark, word), signal.SIGKILL)
    _, err = job.communicate(timeout=15)
    all_end(mark, 10)
    assert said in err
    assert job.returncode == (-9 if not said else 1), err


def test_a_wrapper_that_is_killed_is_named() -> None:
    mark = fresh_mark()
    job = launching.start([*TCP, "-np", "2", "sh", "-c", "echo $PPID; sleep 300"], mark)
    assert job.stdout is not None
    lines = sorted(job.stdout.readline() for _ in range(2))
    os.kill(int(lines[1].partition(":")[2]), signal.SIGKILL)
    _, err = job.communicate(timeout=20)
    assert f"rank 1 on host {HOST} did not report how it ended: horovodrun's process above it" in err
    assert job.returncode == 1
    all_end(mark, 5)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals(number: signal.Signals) -> None:
    """To all of the group, as Ctrl-C: ranks hear SIGINT once, and have time to clean up."""
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
    job = subprocess.Popen(
        [sys.executable, "-m", "horovod.runner", *TCP, "-np", "2", sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        env=launching.environment(mark),
        start_new_session=True,
    )
    assert job.stdout is not None
    for _ in range(2):
        job.stdout.readline()
    os.killpg(job.pid, number)
    out, err = job.communicate(timeout=20)
    for rank in (0, 1):
        own = [line for line in out.splitlines() if line.startswith(f"[{rank}]")]
        assert own == [f"[{rank}]<stdout>:told {int(number)}", f"[{rank}]<stdout>:cleaned up"]
    assert job.returncode == 128 + number and f"stopped by {number.name}, all ranks were ended" in err
    all_end(mark, 5)


def test_the_default_without_an_mpi(tmp_path: Path) -> None:
    """An installation that was built without MPI has another record of its build, and starts jobs."""
    package = Path(horovod.__file__).parent
    without = shutil.ignore_patterns("libhorovod_mpi*", "native", "__pycache__")
    shutil.copytree(package, tmp_path / "horovod", ignore=without)
    record = json.loads((package / "build_info.json").read_text())
    (tmp_path / "horovod" / "build_info.json").write_text(json.dumps({**record, "mpi": {}}))
    environment = launching.environment("no-mpi", PYTHONPATH=f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    done = subprocess.run(
        [sys.executable, "-m", "horovod.runner", "-np", "2", sys.executable, "-c", ALLREDUCE],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert "[1]<stdout>:1 1 2 1 False [3.0, 3.0]\n" in done.stdout, done.stderr
    asked = subprocess.run(
        [sys.executable, "-m", "horovod.runner", "--mpi", "-np", "2", "true"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
    )
    assert asked.returncode == 2 and "this installation has no MPI" in asked.stderr
