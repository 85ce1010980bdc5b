"""Elastic jobs that horovodrun starts: hosts come and go, workers are killed and stopped, scripts fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import busy
import pytest
from launching import fresh_mark, processes_of, start

PROGRAM = Path(__file__).with_name("growing_rank.py")
STALLS = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "1", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "3"}
SILENCE = {"HOROVOD_TCP_TIMEOUT_SECONDS": "3"}


class ElasticJob:
    """A job whose hosts are names of this machine, in a file that its discovery script prints."""

    def __init__(
        self,
        folder: Path,
        *words: str,
        hosts: str = "",
        script: bool = True,
        stdin: int = subprocess.DEVNULL,
        **environment: str,
    ) -> None:
        self.folder = folder
        self.hosts(hosts or "127.0.0.1:1\n127.0.0.2:1\n")
        self.mark = fresh_mark()
        there = (
            ["--host-discovery-script", f"cat {folder}/hosts"] if script else ["-H", "127.0.0.1,127.0.0.2"]
        )
        self.process = start(
            [*there, *words, sys.executable, str(PROGRAM), str(folder)],
            self.mark,
            stdin,
            **environment,
        )
        self.out = self.err = ""

    def hosts(self, lines: str) -> None:
        """Hosts from now on. The script never reads half of them."""
        new = self.folder / "hosts.new"
        new.write_text(lines)
        new.rename(self.folder / "hosts")

    def workers(self) -> dict[str, tuple[int, int, int]]:
        """By "host-start rank-process": rank, size, steps. Those that have ended stay as they were."""
        found = {}
        for path in self.folder.glob("*-*.txt"):
            if len(words := path.read_text().split()) == 3:
                found[path.stem] = (int(words[0]), int(words[1]), int(words[2]))
        return found

    def wait(self, is_so: Callable[[dict[str, tuple[int, int, int]]], bool], seconds: float = 40) -> float:
        """Until it is so; how long that took."""
        began = time.monotonic()
        while not is_so(self.workers()):
            assert self.process.poll() is None, self.end()
            assert time.monotonic() - began < seconds, self.workers()
            time.sleep(0.02)
        return time.monotonic() - began

    def wait_for_size(self, size: int) -> float:
        """Until so many train together."""
        return self.wait(lambda all_: len([one for one in all_.values() if one[1] == size]) >= size)

    def process_of(self, host: str) -> int:
        (name,) = [name for name in self.workers() if name.startswith(f"{host}-")]
        return int(name.rpartition("-")[2])

    def end(self, limit: float = 30) -> int:
        self.out, self.err = self.process.communicate(timeout=limit)
        return self.process.returncode

    def stop(self) -> None:
        (self.folder / "stop").touch()


@contextmanager
def job(
    folder: Path,
    *words: str,
    hosts: str = "",
    script: bool = True,
    stdin: int = subprocess.DEVNULL,
    **environment: str,
) -> Iterator[ElasticJob]:
    """`script` False: the hosts of the beginning are known, and no others come."""
    one = ElasticJob(folder, *words, hosts=hosts, script=script, stdin=stdin, **environment)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.process.terminate()
            one.end()
        assert not processes_of(one.mark), one.err


@pytest.mark.timeout(120)
def test_a_host_comes_and_one_goes(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1", "--max-np", "3") as one:
        one.wait_for_size(2)
        first = one.process_of("127.0.0.1"), one.process_of("127.0.0.2")
        one.hosts("127.0.0.1:1\n127.0.0.2:1\n127.0.0.3:1\n")
        one.wait_for_size(3)
        assert (one.process_of("127.0.0.1"), one.process_of("127.0.0.2")) == first
        steps = min(steps for _, size, steps in one.workers().values() if size == 3)
        one.hosts("127.0.0.2:1\n127.0.0.3:1\n")
        one.wait(
            lambda all_: all(
                size == 2 and step > steps for name, (_, size, step) in all_.items() if ".1-" not in name
            )
        )
        one.stop()
        assert one.end() == 0, one.err
    assert "127.0.0.2-1-" in one.out and "ends as 0 of 2" in one.out, "the oldest is rank 0 now"
    assert "this process is no part of the job any more" in one.err


@pytest.mark.timeout(120)
def test_a_killed_worker_is_replaced_on_another_host(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--max-np", "2", hosts="127.0.0.1:1\n127.0.0.2:1\n127.0.0.3:1\n") as one:
        one.wait_for_size(2)
        os.kill(one.process_of("127.0.0.1"), signal.SIGKILL)
        one.wait(lambda all_: any(name.startswith("127.0.0.3-") for name in all_))
        one.stop()
        assert one.end() == 0, one.err
    assert one.out.count("of 2>") == 2 and "host 127.0.0.1 is on the blacklist" in one.err


@pytest.mark.timeout(120)
def test_each_worker_has_output_and_a_file_of_its_own(tmp_path: Path) -> None:
    """A newcomer begins as rank 1 while the worker lives that began so, and that has become rank 0. Standard
    input goes with the first rank 0, and nobody else reads what is left.
    """
    out = tmp_path / "out"
    words = ["-np", "2", "--max-np", "2", "--output-filename", str(out)]
    hosts = "127.0.0.1:1\n127.0.0.2:1\n127.0.0.3:1\n"
    with job(tmp_path, *words, hosts=hosts, stdin=subprocess.PIPE) as one:
        one.wait_for_size(2)
        assert one.process.stdin is not None
        one.process.stdin.write("a line\n")
        one.process.stdin.flush()
        first = one.process_of("127.0.0.1")
        one.wait(lambda _: (tmp_path / f"read-{first}").exists())
        os.kill(first, signal.SIGKILL)
        one.wait(lambda all_: any(name.startswith("127.0.0.3-") for name in all_))
        one.wait_for_size(2)
        one.stop()
        assert one.end() == 0, one.err
    assert "horovodrun: nobody reads the rest of standard input: the first rank 0 had it, which is lost" in (
        one.err
    )
    assert (tmp_path / f"read-{first}").read_text() == "a line\n"
    ends = {line.partition("<stdout>")[0]: line for line in one.out.splitlines() if "ends as" in line}
    assert ends.keys() == {"[1]", "[1.2]"}
    assert "127.0.0.2-1-" in ends["[1]"] and "ends as 0 of 2" in ends["[1]"]
    assert "127.0.0.3-1-" in ends["[1.2]"] and "ends as 1 of 2" in ends["[1.2]"]
    assert sorted(path.name for path in out.iterdir()) == ["rank.0", "rank.1", "rank.1.2"]
    assert (out / "rank.1.2" / "stdout").read_text().count("ends as 1 of 2") == 1
    assert (out / "rank.1" / "stdout").read_text().count("ends as 0 of 2") == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.3"])  # rank 0 of the first world; a newcomer
def test_a_death_while_ranks_meet(host: str, tmp_path: Path) -> None:
    (tmp_path / f"meets-{host}").touch()
    begins_with = "127.0.0.1:1\n127.0.0.2:1\n"
    with job(tmp_path, "-np", "2", "--min-np", "1", hosts=begins_with) as one:
        if host == "127.0.0.3":
            one.wait_for_size(2)
            one.hosts(f"{begins_with}127.0.0.3:1\n")
        one.wait(lambda all_: (tmp_path / "died").exists())
        steps = max((steps for _, _, steps in one.workers().values()), default=0)
        one.wait(lambda all_: bool(all_) and min(step for _, _, step in all_.values()) > steps + 5)
        one.stop()
        assert one.end() == 0, one.err
    assert f"host {host} exited with code 137 (signal 9, SIGKILL); host {host} is on the blacklist" in one.err
    assert "Traceback" not in one.err


@pytest.mark.timeout(120)
@pytest.mark.parametrize("limit", [STALLS, SILENCE], ids=["stall", "silence"])
def test_a_stopped_worker_is_left_behind(limit: dict[str, str], tmp_path: Path) -> None:
    """By the others, who wait for it, or ended by what started it: its host is theirs."""
    with job(
        tmp_path, "-np", "3", "--min-np", "2", hosts="127.0.0.1\n127.0.0.2\n127.0.0.3\n", **limit
    ) as one:
        one.wait_for_size(3)
        victim = one.process_of("127.0.0.1")
        os.kill(victim, signal.SIGSTOP)
        one.wait(lambda all_: len([one for one in all_.values() if one[1] == 2]) == 2)
        one.stop()
        assert one.end() == 0, one.err
    assert one.out.count("of 2>") == 2
    said = f"process {victim} on host {os.uname().nodename} has been stopped for 3 s"
    assert (said in one.err) == (limit is SILENCE), one.err


@pytest.mark.timeout(120)
def test_a_worker_that_goes_on_in_time_stays(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1", **SILENCE) as one:
        one.wait_for_size(2)
        victim = one.process_of("127.0.0.2")
        for _ in range(2):
            os.kill(victim, signal.SIGSTOP)
            time.sleep(2)
            os.kill(victim, signal.SIGCONT)
            steps = max(steps for _, _, steps in one.workers().values())
            one.wait(lambda all_, steps=steps: min(step for _, _, step in all_.values()) > steps + 2)
        one.stop()
        assert one.end() == 0, one.err
    assert one.out.count("of 2>") == 2 and "has been stopped" not in one.err


@pytest.mark.timeout(120)
def test_an_exception_of_the_script_ends_the_job(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1") as one:
        one.wait_for_size(2)
        (tmp_path / "raise-1").touch()
        assert one.end() == 1
    assert one.err.count("RuntimeError: the data of this rank is damaged") == 1, one.err
    assert "nothing caught" in one.err or "exception" in one.err.splitlines()[-1]


@pytest.mark.timeout(120)
def test_an_internal_error_of_the_functions_own_ends_the_job_the_third_time(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1") as one:
        one.wait_for_size(2)
        (tmp_path / "raise-internal-0").touch()
        assert one.end() == 1
    assert one.err.count("goes back to its last commit, as this failed: raised by the function") == 3, one.err
    assert "exception" in one.err.splitlines()[-1] and "blacklist" not in one.err


@pytest.mark.timeout(120)
def test_too_few_and_no_others_will_come(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--elastic-timeout", "4") as one:
        one.wait_for_size(2)
        os.kill(one.process_of("127.0.0.2"), signal.SIGKILL)
        assert one.end() != 0
    waits = "horovodrun: waits for 1 more worker, as at least 2 are needed, up to 4 s (--elastic-timeout)\n"
    assert one.err.count(waits) == 1, one.err
    assert "waited 4 s (--elastic-timeout): 1 of 2 workers ready, and hosts that can be used have 1 slot" in (
        one.err
    )


@pytest.mark.timeout(120)
def test_too_few_of_hosts_that_are_known(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "2", script=False) as one:
        one.wait_for_size(2)
        os.kill(one.process_of("127.0.0.2"), signal.SIGKILL)
        assert one.end() != 0
    failed = "horovodrun: Horovod detected that one or more processes exited with non-zero status: "
    needed = "at least 2 workers are needed, and 1 is left; there is no host for another: "
    assert failed + needed in one.err


@pytest.mark.timeout(120)
def test_a_limit_of_resets(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1", "--reset-limit", "0") as one:
        one.wait_for_size(2)
        os.kill(one.process_of("127.0.0.2"), signal.SIGKILL)
        assert one.end() != 0
    assert "Horovod was shutdown because number of resets during elastic job exceeded limit" in one.err


@pytest.mark.timeout(120)
def test_an_interrupt_is_no_failure_of_hosts(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1") as one:
        one.wait_for_size(2)
        one.process.send_signal(signal.SIGINT)
        assert one.end() == 130
    assert "blacklist" not in one.err and "non-zero status" not in one.err, one.err


@pytest.mark.timeout(120)
def test_it_waits_for_hosts_as_long_as_it_may(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--start-timeout", "2", hosts="127.0.0.1:1\n") as one:
        time.sleep(4)
        one.hosts("127.0.0.1:1\n127.0.0.2:1\n")
        one.wait_for_size(2)
        one.stop()
        assert one.end() == 0, one.err


@pytest.mark.timeout(60)
def test_what_elastic_jobs_have_not(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--ddp") as one:
        assert one.end() == 2 and "--ddp" in one.err, one.err


@pytest.mark.timeout(120)
def test_the_launcher_takes_everything_along(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--min-np", "1") as one:
        one.wait_for_size(2)
        one.process.kill()
        one.end()
        until = busy.limit(10)
        while processes_of(one.mark) and time.monotonic() < until:
            time.sleep(0.1)


@pytest.mark.timeout(60)
def test_a_script_that_fails_at_first(tmp_path: Path) -> None:
    with job(tmp_path, "-np", "2", "--launcher", "mpi") as one:
        assert one.end() == 2 and "--launcher mpi" in one.err
    (tmp_path / "hosts").unlink()
    mark = fresh_mark()
    words = ["--host-discovery-script", f"cat {tmp_path}/hosts", "-np", "1", "true"]
    process = start(words, mark)
    _, err = process.communicate(timeout=40)
    assert process.returncode == 2 and "no hosts were found" in err
