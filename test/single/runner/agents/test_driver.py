"""Jobs of real agents, started by a substitute for ssh, and the end of jobs that fail."""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import busy
import fake_ssh
import pytest

from horovod.common import time_limits
from horovod.runner import processes
from horovod.runner.agents import wrapper
from horovod.runner.agents.decisions import FixedJob
from horovod.runner.agents.driver import Driver, JobInput, Run
from horovod.runner.agents.frames import packed_environment
from horovod.runner.agents.job import Job, Told
from horovod.runner.agents.output import RankOutput, Writer
from horovod.runner.agents.reaching import Ways
from horovod.runner.agents.supervision import Ending, Supervision
from horovod.runner.shell import Ssh

TOLD = packed_environment({b"PATH": os.environb[b"PATH"], b"GIVEN": b"told"})


@dataclass
class Jobs:
    """Runs a job with a rank on each host; its output is in `out` and `err`."""

    log: Path
    input: int = field(default_factory=lambda: os.open(os.devnull, os.O_RDONLY))
    out: bytes = b""
    err: bytes = b""

    def run(
        self, hosts: str, script: str, meets: bool = False, refusal: str = "", start_timeout: float = 30.0
    ) -> Ending:
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        streams = [open(end, "wb", buffering=0) for end in (out_end, err_end)]  # noqa: SIM115
        readers = [threading.Thread(target=self._read, args=each) for each in (("out", out), ("err", err))]
        for reader in readers:
            reader.start()
        names = hosts.split()
        words = [sys.executable, "-I", "-S", wrapper.__file__, "/", "sh", "-c", script]
        supervision = Supervision(len(names), start_timeout)
        told = Told(words, TOLD, TOLD, b"", lambda facts: refusal)
        with Driver(Ways(Ssh())) as driver:
            if meets:
                driver.meet(names, 30.0)
            writer = Writer(RankOutput(len(names), *streams))
            job = Job(
                FixedJob([(name, 1) for name in names]), told, driver.connections, supervision, writer
            )
            code = Run(driver, job, supervision, writer, JobInput(self.input)).exit_code()
        for stream in streams:
            stream.close()
        for reader in readers:
            reader.join()
        return supervision.ending(code)

    def _read(self, name: str, pipe: int) -> None:
        with open(pipe, "rb") as file:
            setattr(self, name, file.read())


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.setattr(time_limits, "AGENT_RETRY", 0.05)
    before = set(processes.children())
    made = Jobs(fake_ssh.put_first(tmp_path, monkeypatch))
    yield made
    os.close(made.input)
    busy.until(lambda: not set(processes.children()) - before)


def soon(act: Callable[[], object], when: Callable[[], object]) -> threading.Thread:
    """Run an action, beside the job, once a condition holds."""

    def wait() -> None:
        busy.until(lambda: bool(when()))
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@pytest.mark.timeout(120)
@pytest.mark.parametrize("meets", [False, True])
def test_ranks_of_hosts_that_come_at_once_and_at_the_second_try(meets: bool, jobs: Jobs) -> None:
    """Frames sent before the first try failed are not lost."""
    ending = jobs.run("good1 slow", "echo $HOROVOD_RANK $GIVEN $HOROVOD_HOSTNAME", meets)
    assert ending == Ending(0) and jobs.err == b""
    assert sorted(jobs.out.splitlines()) == [b"[0]<stdout>:0 told good1", b"[1]<stdout>:1 told slow"]
    assert jobs.log.read_text().split().count("slow") == 2


@pytest.mark.timeout(120)
def test_standard_input_is_the_first_ranks_also_at_the_second_try(jobs: Jobs) -> None:
    data = bytes(range(256)) * 4096  # several windows
    source, end = os.pipe()
    os.close(jobs.input)
    jobs.input = source

    def feed() -> None:
        with open(end, "wb") as file:
            file.write(data)

    feeder = threading.Thread(target=feed)
    feeder.start()
    ending = jobs.run("slow good1", "[ $HOROVOD_RANK = 1 ] || sha256sum")
    feeder.join()
    assert ending == Ending(0)
    assert jobs.out == f"[0]<stdout>:{hashlib.sha256(data).hexdigest()}  -\n".encode()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("liar", b"horovodrun: liar: its answer is not understood, "),
        ("torn", b"horovodrun: torn: its answer is not understood, no frame begins with "),
        ("greedy", b"horovodrun: greedy: exit code 203: horovodrun: its words did not reach "),
        ("gone", b"horovodrun: gone: unknown host name"),
        ("shut", b"horovodrun: shut: connection refused"),
        ("killed", b"horovodrun: killed: its agent, or the ssh before it, was killed by signal 9 (SIGKILL)"),
    ],
)
def test_a_host_that_goes_wrong_ends_the_job_with_the_reason(host: str, said: bytes, jobs: Jobs) -> None:
    began = time.monotonic()
    ending = jobs.run(f"good1 {host}", "exec sleep 60")
    assert ending.code == 1 and said in jobs.err, jobs.err
    assert time.monotonic() - began < busy.patience(30)


@pytest.mark.timeout(120)
def test_an_agent_that_is_killed_takes_its_ranks_along_and_is_named(jobs: Jobs, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    tells = f"sleep 1; echo $$ > {ready}.new && mv {ready}.new {ready}"
    script = f"[ $HOROVOD_RANK = 0 ] || {{ {tells}; }}; exec sleep 60"

    def kill() -> None:
        rank = int(ready.read_text())
        above = [int(Path(f"/proc/{rank}/stat").read_text().rpartition(")")[2].split()[1])]
        above.append(int(Path(f"/proc/{above[0]}/stat").read_text().rpartition(")")[2].split()[1]))
        os.kill(above[1], signal.SIGKILL)

    killer = soon(kill, ready.exists)
    ending = jobs.run("good1 good2", script)
    killer.join()
    assert ending.code == 1 and "was lost: that host, or the network to it" in ending.message
    assert ending.culprit == 1 and b"horovodrun: good2: exit code 137" in jobs.err
    busy.until(lambda: busy.has_ended(int(ready.read_text())))


@pytest.mark.timeout(120)
def test_a_host_with_another_build_is_refused_before_it_starts_a_rank(jobs: Jobs, tmp_path: Path) -> None:
    ending = jobs.run("good1", f"touch {tmp_path}/began; sleep 60", refusal="it has another build")
    assert ending.code == 1 and b"horovodrun: good1: it has another build\n" in jobs.err
    assert not (tmp_path / "began").exists()


@pytest.mark.timeout(120)
def test_a_host_that_is_tried_again_when_the_job_is_to_end_starts_nothing(
    jobs: Jobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "AGENT_RETRY", 3.0)
    script = f"[ $HOROVOD_RANK = 0 ] && exit 3; touch {tmp_path}/began; exec sleep 60"
    ending = jobs.run("good1 slow", script)
    assert (ending.code, ending.culprit) == (3, 0)
    assert not (tmp_path / "began").exists()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_ranks_by_the_same(number: signal.Signals, jobs: Jobs, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    name = number.name.removeprefix("SIG")
    script = f"trap 'echo told; exit 4' {name}; touch {ready}.$HOROVOD_RANK; while :; do sleep 0.05; done"
    both = [tmp_path / f"ready.{rank}" for rank in (0, 1)]
    killer = soon(lambda: os.kill(os.getpid(), number), lambda: all(each.exists() for each in both))
    ending = jobs.run("good1 good2", script)
    killer.join()
    assert ending == Ending(128 + number, f"stopped by {number.name}, all ranks were ended")
    assert sorted(jobs.out.splitlines()) == [b"[0]<stdout>:told", b"[1]<stdout>:told"]


@pytest.mark.timeout(120)
def test_more_output_than_all_windows_hold_is_whole(jobs: Jobs) -> None:
    script = "i=0; while [ $i -lt 40 ]; do i=$((i + 1)); head -c 200000 /dev/zero; echo; done"
    assert jobs.run("good1 good2", script) == Ending(0)
    assert jobs.out.count(b"\n") == 80 and jobs.out.count(b"\0") == 2 * 40 * 200_000
