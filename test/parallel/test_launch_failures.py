"""horovodrun when something goes wrong: who is named, which exit code, and that nothing is left."""

import importlib.util
import os
import signal
import sys
import time
from pathlib import Path

import busy
import launching
import pytest
from launching import HOST, LAUNCHERS, all_end, fresh_mark, horovodrun, needs_mpirun, processes_of

needs_mpi4py = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)


def only_rank(rank: int, action: str) -> list[str]:
    """A shell command: one rank does something, the others would wait for minutes."""
    is_it = f"[ ${{HOROVOD_RANK:-$OMPI_COMM_WORLD_RANK}} = {rank} ]"
    return ["sh", "-c", f"if {is_it}; then sleep 0.3; {action}; else sleep 300; fi"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_exit_code_of_the_failing_rank(launcher: str) -> None:
    words = ["--launcher", launcher, "-np", "3"]
    result = horovodrun(*words, *only_rank(1, "echo oh >&2; exit 3"), limit=20)
    assert result.returncode == 3
    said = f"horovodrun: rank 1 on host {HOST} exited with code 3; the other ranks were ended"
    assert result.stderr == f"[1]<stderr>:oh\n{said}\n"


@needs_mpirun
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_is_killed(number: signal.Signals) -> None:
    started = time.monotonic()
    result = horovodrun("-np", "4", *only_rank(2, f"kill -{int(number)} $$"), limit=15)
    assert time.monotonic() - started < busy.patience(12)
    assert result.returncode == 128 + number
    assert f"rank 2 on host {HOST} was killed by signal {int(number)} ({number.name})" in result.stderr


@needs_mpirun
@needs_mpi4py
def test_a_rank_that_is_killed_inside_mpi() -> None:
    code = """
from mpi4py import MPI
import os
c = MPI.COMM_WORLD
c.Barrier()
if c.rank == 2:
    os.kill(os.getpid(), 9)
c.Barrier()
"""
    result = horovodrun("-np", "4", sys.executable, "-c", code, limit=15)
    assert result.returncode == 137
    assert f"rank 2 on host {HOST} was killed by signal 9 (SIGKILL)" in result.stderr


@needs_mpirun
@needs_mpi4py
def test_mpi_abort() -> None:
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; c.Barrier(); c.rank == 1 and c.Abort(5); c.Barrier()"
    result = horovodrun("-np", "2", sys.executable, "-c", code, limit=15)
    assert result.returncode == 5 and f"rank 1 on host {HOST} exited with code 5" in result.stderr


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_rank_that_cannot_report_is_no_success(launcher: str) -> None:
    """A wrapper that is killed cannot report: that is no success, the job ends, and the rank is named."""
    mark = fresh_mark()
    words = ["--launcher", launcher, "-np", "2", "sh", "-c", "echo $PPID; sleep 300"]
    process = launching.start(words, mark)
    assert process.stdout is not None
    lines = sorted(process.stdout.readline() for _ in range(2))
    os.kill(int(lines[1].partition(":")[2]), signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode != 0 and "did not report how it ended" in err
    if launcher == "tcp":  # mpirun may end the others before it says whom it misses
        assert process.returncode == 1 and f"rank 1 on host {HOST} did not report" in err
    all_end(mark, 5)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_a_command_that_does_not_exist(launcher: str) -> None:
    result = horovodrun("--launcher", launcher, "-np", "2", "no-such-command-here", limit=20)
    assert result.returncode == 127
    assert "the command no-such-command-here was not found (PATH is" in result.stderr


@needs_mpirun
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopping_horovodrun_ends_everything(number: signal.Signals) -> None:
    mark = fresh_mark()
    process = launching.start(["-np", "2", "sh", "-c", "echo up; sleep 300 & sleep 300"], mark)
    assert process.stdout is not None
    assert {process.stdout.readline() for _ in range(2)} == {"[0]<stdout>:up\n", "[1]<stdout>:up\n"}
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 128 + number and number.name in err
    assert not processes_of(mark)


WAITING = ["sh", "-c", "trap '' TERM INT; echo here; sleep 300 & wait; wait"]


def pid_of(mark: str, word: str) -> int:
    """Of the one process of a job whose command line has this word."""
    found = [line for line in processes_of(mark) if word in line.split(" -c ")[0]]
    assert len(found) == 1, found
    return int(found[0].partition(":")[0])


@pytest.mark.parametrize(
    ("launcher", "word", "code", "said"),
    [
        ("tcp", "agents/driver.py", 1, "the driver of the job was killed by signal 9 (SIGKILL)"),
        ("tcp", "agents/agent.py", 1, f"ranks 0, 1 on host {HOST} were lost"),
        ("tcp", "horovod.runner", -9, ""),
        pytest.param("mpi", "horovod.runner", -9, "", marks=needs_mpirun),
    ],
)
def test_nothing_outlives_what_is_killed(launcher: str, word: str, code: int, said: str) -> None:
    """Ranks that heed no signal, and have children, too."""
    mark = fresh_mark()
    job = launching.start(["--launcher", launcher, "-np", "2", *WAITING], mark)
    assert job.stdout is not None
    assert [job.stdout.readline()[3:] for _ in range(2)] == ["<stdout>:here\n"] * 2
    os.kill(pid_of(mark, word), signal.SIGKILL)
    _, err = job.communicate(timeout=15)
    all_end(mark, 15)
    assert said in err and job.returncode == code, err


@needs_mpirun
def test_a_reader_that_goes_away_ends_the_job() -> None:
    mark = fresh_mark()
    process = launching.start(["-np", "1", "sh", "-c", "while echo y; do sleep 0.01; done"], mark)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(timeout=20) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""
    process.stderr.close()
    assert not processes_of(mark)


@needs_mpirun
def test_ranks_that_do_not_start_in_time(tmp_path: Path) -> None:
    """An mpirun whose remote agent never answers, as a host behind a firewall would not."""
    agent = tmp_path / "agent"
    agent.write_text("#!/bin/sh\nsleep 300\n")
    agent.chmod(0o755)
    options = ["-np", "2", "-H", "localhost:1,far.invalid:1", "--start-timeout", "2"]
    result = horovodrun(*options, f"--mpi-args=--prtemca plm_ssh_agent {agent}", "hostname", limit=30)
    assert result.returncode == 1
    assert "ranks 0, 1 did not start within 2 s. Likely causes" in result.stderr
