"""Elastic jobs that horovodrun starts: hosts come and go, workers are killed and stopped, scripts fail."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import busy
import pytest
from elastic_job import LONG, Job, at_step
from launching import fresh_mark, processes_of, start

STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
SILENCE = {"HOROVOD_TCP_TIMEOUT_SECONDS": "3"}
BY_HOST = ("--blacklist", "host")  # Horovod's rule
pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    """A job of workers that train until they are stopped."""
    return Job(tmp_path, epochs=LONG)


def kill(job: Job, host: str) -> None:
    os.kill(job.workers()[host].pid, signal.SIGKILL)


def test_a_host_comes_and_one_goes(job: Job) -> None:
    def first_two() -> list[int]:
        return [job.workers()[host].pid for host in ("127.0.0.1", "127.0.0.2")]

    with job.started("-np", "2", "--min-np", "1", "--max-np", "3"):
        job.wait_for_size(2)
        first = first_two()
        job.hosts(1, 2, 3)
        job.wait_for_size(3)
        assert first_two() == first
        step = min(one.step for one in job.workers().values() if one.size == 3)
        job.hosts(2, 3)
        job.wait(lambda workers: len([one for one in workers if one.size == 2 and one.step > step]) == 2)
        assert job.stop() == 0, job.err
    assert "<127.0.0.2 ends as 0 of 2>" in job.out, "the oldest is rank 0 now"
    assert "this process is no part of the job any more" in job.err


def test_a_killed_worker_is_replaced_on_another_host(job: Job) -> None:
    job.hosts(1, 2, 3)
    with job.started("-np", "2", "--max-np", "2"):
        job.wait_for_size(2)
        kill(job, "127.0.0.1")
        job.wait(lambda _: "127.0.0.3" in job.workers())
        assert job.stop() == 0, job.err
    assert job.out.count("of 2>") == 2 and "slot 0 there is used again after 5 s" in job.err


def test_each_worker_has_output_and_a_file_of_its_own(job: Job, tmp_path: Path) -> None:
    """A new worker starts as rank 1 while the worker that started as rank 1 is alive and has become rank 0.

    Standard input belongs to the first rank 0, and no other worker reads the rest.
    """
    out = tmp_path / "out"
    job.hosts(1, 2, 3)
    words = ["-np", "2", "--max-np", "2", "--output-filename", str(out)]
    with job.started(*words, stdin=subprocess.PIPE):
        job.wait_for_size(2)
        assert job.process.stdin is not None
        job.process.stdin.write("a line\n")
        job.process.stdin.flush()
        job.wait(lambda _: any(note["line"] for note in job.notes("reads")))
        kill(job, "127.0.0.1")
        job.wait(lambda _: "127.0.0.3" in job.workers())
        assert job.stop() == 0, job.err
    assert "horovodrun: no rank reads the rest of standard input: the first rank 0 had it, which is lost" in (
        job.err
    )
    [read] = [note for note in job.notes("reads") if note["line"]]
    assert (read["host"], read["line"]) == ("127.0.0.1", "a line\n")
    ends = {line.partition("<stdout>")[0]: line for line in job.out.splitlines() if "ends as" in line}
    assert ends.keys() == {"[1]", "[1.2]"}
    assert "<127.0.0.2 ends as 0 of 2>" in ends["[1]"]
    assert "<127.0.0.3 ends as 1 of 2>" in ends["[1.2]"]
    assert sorted(path.name for path in out.iterdir()) == ["rank.0", "rank.1", "rank.1.2"]
    assert (out / "rank.1.2" / "stdout").read_text().count("ends as 1 of 2") == 1
    assert (out / "rank.1" / "stdout").read_text().count("ends as 0 of 2") == 1


@pytest.mark.parametrize("victim", [0, 2], ids=["rank 0 of the first world", "a newcomer"])
def test_a_death_while_ranks_meet(victim: int, tmp_path: Path) -> None:
    """The worker dies when the launcher has sent its place, and before any other rank sees it."""
    job = Job(tmp_path, at_step("killed", victim, 0, "meeting"), epochs=LONG)
    with job.started("-np", "2", "--min-np", "1"):
        if victim == 2:
            job.wait_for_size(2)
            job.hosts(1, 2, 3)
        job.wait(lambda _: bool(job.notes("strikes")))
        step = max((one.step for one in job.workers().values()), default=0)
        job.wait(lambda workers: bool(workers) and min(one.step for one in workers) > step + 5)
        assert job.stop() == 0, job.err
    host = f"127.0.0.{victim + 1}"
    assert f"host {host} was killed by signal 9 (SIGKILL); slot 0 there is used again after 5 s" in job.err
    assert "Traceback" not in job.err


@pytest.mark.parametrize("limit", [STALLS, SILENCE], ids=["stall", "silence"])
def test_a_stopped_worker_is_left_behind(limit: dict[str, str], job: Job) -> None:
    """The ranks that wait for it report it, or its parent process ends it."""
    job.hosts(1, 2, 3)
    with job.started("-np", "3", "--min-np", "2", *BY_HOST, **limit):
        job.wait_for_size(3)
        victim = job.workers()["127.0.0.1"].pid
        os.kill(victim, signal.SIGSTOP)
        job.wait(lambda workers: len([one for one in workers if one.size == 2]) == 2)
        assert job.stop() == 0, job.err
    assert job.out.count("of 2>") == 2
    said = f"process {victim} on host {os.uname().nodename} has been stopped for 3 s"
    assert (said in job.err) == (limit is SILENCE), job.err


def test_a_worker_that_goes_on_in_time_stays(job: Job) -> None:
    with job.started("-np", "2", "--min-np", "1", **SILENCE):
        job.wait_for_size(2)
        victim = job.workers()["127.0.0.2"].pid
        for _ in range(2):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(2)
            os.kill(victim, signal.SIGCONT)
            step = max(one.step for one in job.workers().values())
            job.wait(lambda workers, step=step: min(one.step for one in workers) > step + 2)
        assert job.stop() == 0, job.err
    assert job.out.count("of 2>") == 2 and "has been stopped" not in job.err


def test_an_internal_error_of_the_functions_own_ends_the_job_the_third_time(tmp_path: Path) -> None:
    job = Job(tmp_path, *[at_step("internal_error", 0, 5)] * 3, epochs=LONG)
    with job.started("-np", "2", "--min-np", "2", finds_hosts=False):
        assert job.end() == 1
    assert job.err.count("goes back to its last commit, as this failed: raised by the function") == 3, job.err
    assert "exception" in job.err.splitlines()[-1] and "blacklist" not in job.err


def test_too_few_and_no_others_will_come(job: Job) -> None:
    with job.started("-np", "2", "--elastic-timeout", "4", *BY_HOST):
        job.wait_for_size(2)
        kill(job, "127.0.0.2")
        assert job.end() != 0
    waits = "horovodrun: waits for 1 more worker, as at least 2 are needed, up to 4 s (--elastic-timeout)\n"
    assert job.err.count(waits) == 1, job.err
    assert "waited 4 s (--elastic-timeout): 1 of 2 workers ready, and hosts that can be used have 1 slot" in (
        job.err
    )


@pytest.mark.parametrize(
    ("options", "finds_hosts", "said"),
    [
        (
            ["--min-np", "2", *BY_HOST],
            False,
            "horovodrun: Horovod detected that one or more processes exited with non-zero status: "
            "at least 2 workers are needed, and 1 is left; there is no slot for another: ",
        ),
        (
            ["--min-np", "1", "--reset-limit", "0"],
            True,
            "Horovod was shutdown because number of resets during elastic job exceeded limit",
        ),
    ],
    ids=["too few of hosts that are known", "a limit of resets"],
)
def test_a_death_ends_it(options: list[str], finds_hosts: bool, said: str, job: Job) -> None:
    with job.started("-np", "2", *options, finds_hosts=finds_hosts):
        job.wait_for_size(2)
        kill(job, "127.0.0.2")
        assert job.end() != 0
    assert said in job.err


def test_an_interrupt_is_no_failure_of_hosts(job: Job) -> None:
    with job.started("-np", "2", "--min-np", "1"):
        job.wait_for_size(2)
        job.process.send_signal(signal.SIGINT)
        assert job.end() == 130
    assert "blacklist" not in job.err and "non-zero status" not in job.err, job.err


def test_it_waits_for_hosts_as_long_as_it_may(job: Job) -> None:
    job.hosts(1)
    with job.started("-np", "2", "--start-timeout", "2"):
        time.sleep(4)
        job.hosts(1, 2)
        job.wait_for_size(2)
        assert job.stop() == 0, job.err


def test_the_launcher_takes_everything_along(job: Job) -> None:
    with job.started("-np", "2", "--min-np", "1"):
        job.wait_for_size(2)
        job.process.kill()
        job.end()
        busy.until(lambda: not processes_of(job.mark), 10)


@pytest.mark.parametrize("option", ["--ddp", "--launcher mpi"])
def test_what_elastic_jobs_have_not(option: str, job: Job) -> None:
    with job.started("-np", "2", *option.split()):
        assert job.end() == 2 and option in job.err, job.err


def test_a_script_that_fails_at_first(tmp_path: Path) -> None:
    words = ["--host-discovery-script", f"cat {tmp_path}/hosts", "-np", "1", "true"]
    process = start(words, fresh_mark())
    _, err = process.communicate(timeout=40)
    assert process.returncode == 2 and "no hosts were found" in err
