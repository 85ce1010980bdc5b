"""horovodrun after a failure: the name of the failed rank, the exit code, and no process left."""

import os
import signal
import time
from pathlib import Path

import busy
import launching
import pytest
from launching import HOST, all_end, fresh_mark, horovodrun, processes_of


def only_rank(rank: int, action: str) -> list[str]:
    """Return a shell command: one rank does something, the others wait for minutes."""
    return ["sh", "-c", f"if [ $HOROVOD_RANK = {rank} ]; then sleep 0.3; {action}; else sleep 300; fi"]


def test_the_exit_code_of_the_failing_rank() -> None:
    result = horovodrun("-np", "3", *only_rank(1, "echo oh >&2; exit 3"), limit=20)
    assert result.returncode == 3
    said = f"horovodrun: rank 1 on host {HOST} exited with code 3; the other ranks were ended"
    assert result.stderr == f"[1]<stderr>:oh\n{said}\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_rank_that_is_killed(number: signal.Signals) -> None:
    started = time.monotonic()
    result = horovodrun("-np", "4", *only_rank(2, f"kill -{int(number)} $$"), limit=15)
    assert time.monotonic() - started < busy.patience(12)
    assert result.returncode == 128 + number
    assert f"rank 2 on host {HOST} was killed by signal {int(number)} ({number.name})" in result.stderr


def test_a_rank_that_cannot_report_is_no_success() -> None:
    """A killed wrapper cannot report: that is no success, the job ends, and the rank is named."""
    mark = fresh_mark()
    process = launching.start(["-np", "2", "sh", "-c", "echo $PPID; sleep 300"], mark)
    assert process.stdout is not None
    lines = sorted(process.stdout.readline() for _ in range(2))
    os.kill(int(lines[1].partition(":")[2]), signal.SIGKILL)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 1 and f"rank 1 on host {HOST} did not report how it ended" in err
    all_end(mark, 5)


def test_a_command_that_does_not_exist() -> None:
    result = horovodrun("-np", "2", "no-such-command-here", limit=20)
    assert result.returncode == 127
    assert "the command no-such-command-here was not found (PATH is" in result.stderr


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
    """Return the id of the only process of a job whose command line has this word."""
    found = [line for line in processes_of(mark) if word in line.split(" -c ")[0]]
    assert len(found) == 1, found
    return int(found[0].partition(":")[0])


@pytest.mark.parametrize(
    ("word", "code", "said"),
    [("agents/agent.py", 1, f"ranks 0, 1 on host {HOST} were lost"), ("horovod.runner", -9, "")],
)
def test_nothing_outlives_what_is_killed(word: str, code: int, said: str) -> None:
    """Ranks that ignore signals, and have children that do, end too."""
    mark = fresh_mark()
    job = launching.start(["-np", "2", *WAITING], mark)
    assert job.stdout is not None
    assert [job.stdout.readline()[3:] for _ in range(2)] == ["<stdout>:here\n"] * 2
    os.kill(pid_of(mark, word), signal.SIGKILL)
    _, err = job.communicate(timeout=15)
    all_end(mark, 15)
    assert said in err and job.returncode == code, err


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


def test_a_host_that_does_not_answer_in_time(tmp_path: Path) -> None:
    """A host behind a firewall."""
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nsleep 300\n")
    ssh.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{launching.environment('')['PATH']}"
    options = ["-np", "2", "-H", "localhost:1,far.invalid:1", "--start-timeout", "2"]
    result = horovodrun(*options, "hostname", limit=30, PATH=path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "1 remote host cannot take part" in result.stderr
    assert "far.invalid (no answer within 2 s)" in result.stderr
