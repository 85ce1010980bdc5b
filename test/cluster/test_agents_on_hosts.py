"""Jobs on several hosts, by agents over ssh, or srun: no process of a job is left on any host."""

from __future__ import annotations

import hashlib
import os
import re
import signal
import sys
import time
from pathlib import Path

import busy
import pytest
import rig  # puts test/parallel on the path
from launching import MARK, fresh_mark, processes_of
from rig import Cluster
from test_slurm import variables  # noqa: F401 -- a fixture

from horovod.runner.agents import agent
from horovod.runner.agents.frames import BY_SSH

SUM = """
import os, torch, horovod.torch as hvd
hvd.init()
x = hvd.allreduce(torch.full((100_000,), float(hvd.rank() + 1)), op=hvd.Sum, name="x")
place = (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size())
names = ("LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")
told = tuple(int(os.environ["HOROVOD_" + name]) for name in names)
assert place == told, (place, told)
print("rank", hvd.rank(), "of", hvd.size(), "on", os.uname().nodename, "sum", x[-1].item())
hvd.shutdown()
"""


def left(mark: str) -> list[str]:
    """Return the processes of a job on all hosts. An agent over ssh starts without the job's environment."""
    return [*processes_of(mark), *(str(pid) for pid in _pids() if _is_agent_over_ssh(pid))]


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _words(pid: int) -> list[str]:
    """Return the words of its command line, and an empty last one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]  # the process has ended


def all_end(mark: str, seconds: float) -> None:
    until = busy.limit(seconds)
    while found := left(mark):
        assert time.monotonic() < until, found
        time.sleep(0.1)


@pytest.mark.quick
def test_a_job_on_two_hosts(cluster: Cluster) -> None:
    mark = fresh_mark()
    words = ("-np", "4", "-H", "t1:2,t2:2", sys.executable, "-c", SUM)
    result = cluster.horovodrun(*words, **{MARK: mark})
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}]<stdout>:rank {rank} of 4 on {host} sum 10.0"
        for rank, host in enumerate(("t1", "t1", "t2", "t2"))
    ]
    assert cluster.files_left() == [] and left(mark) == []


def test_other_hosts_only_and_unlike_ones(cluster: Cluster) -> None:
    words = ("-np", "3", "-H", "t2:2,t3:1", sys.executable, "-c", SUM)
    result = cluster.horovodrun(*words)
    assert result.stdout.count("sum 6.0") == 3, result.stderr


def test_what_is_secret_is_in_no_command_line(cluster: Cluster) -> None:
    command = "echo $TOKEN $HOROVOD_SECRET; cat /proc/*/cmdline 2>/dev/null | tr '\\0' ' '"
    result = cluster.horovodrun("-np", "2", "-H", "t1:1,t2:1", "sh", "-c", command, TOKEN="my-own-token")
    said = re.findall(r"^\[(\d)\]<stdout>:my-own-token (\w{64})$", result.stdout, re.MULTILINE)
    assert sorted(rank for rank, _ in said) == ["0", "1"] and said[0][1] == said[1][1], result.stderr
    assert result.stdout.count("my-own-token") == 2 and result.stdout.count(said[0][1]) == 2


def test_long_output_and_input_of_another_host_are_whole(cluster: Cluster, tmp_path: Path) -> None:
    data = os.urandom(4_000_000)
    (tmp_path / "in").write_bytes(data)
    command = "if [ $HOROVOD_RANK = 0 ]; then sha256sum; else head -c 12000000 /dev/zero; echo; fi"
    horovodrun = f"{sys.executable} -m horovod.runner -np 3 -H t2:2,t1:1"
    script = f"{horovodrun} sh -c '{command}' < {tmp_path}/in > {tmp_path}/out"
    result = cluster.run("t1", ["bash", "-c", script])
    assert result.returncode == 0, result.stderr
    out = (tmp_path / "out").read_bytes()
    assert f"[0]<stdout>:{hashlib.sha256(data).hexdigest()}  -\n".encode() in out
    for rank in (1, 2):
        assert b"[%d]<stdout>:" % rank + b"\0" * 12_000_000 + b"\n" in out


def test_a_function_on_two_hosts(cluster: Cluster) -> None:
    call = "horovod.run(os.uname, num_proc=3, hosts='t1:1,t2:2')"
    code = f"import horovod, os; print([where.nodename for where in {call}])"
    result = cluster.run("t1", [sys.executable, "-c", code])
    assert result.stdout == "['t1', 't2', 't2']\n", result.stderr


WAITING = "trap '' TERM INT; echo $$; sleep 300 & wait; wait"


@pytest.mark.parametrize("what", ["agent", "ssh", "horovodrun"])
def test_nothing_outlives_what_is_killed(cluster: Cluster, what: str) -> None:
    """Ranks that ignore signals, and have children that do, end too."""
    mark = fresh_mark()
    words = [sys.executable, "-m", "horovod.runner", "-np", "4", "-H", "t1:2,t2:2", "sh", "-c", WAITING]
    job = cluster.start("t1", words, **{MARK: mark})
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    victims = [pid for pid in _pids() if _is_victim(what, pid, mark)]
    assert victims
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    _, err = job.communicate(timeout=20)
    all_end(mark, 10)
    assert cluster.files_left() == []
    if what in ("agent", "ssh"):
        assert "ranks 2, 3 on host t2 were lost: that host, or the network to it, has failed" in err
        assert job.returncode == 1


def _is_agent_over_ssh(pid: int) -> bool:
    program, *words = _words(pid)
    return agent.__file__ in words and BY_SSH in words and "python" in program


def _is_victim(what: str, pid: int, mark: str) -> bool:
    """Return whether a process is of the job: agents over ssh lack its mark, ssh has the agent's words."""
    if what == "agent":
        return _is_agent_over_ssh(pid)
    program, *words = _words(pid)
    is_ours = any(line.startswith(f"{pid}:") for line in processes_of(mark))
    names = {"ssh": program.endswith("ssh")}
    return is_ours and names.get(what, "horovod.runner" in words)


@pytest.mark.parametrize("how", ["cut", "unlink"])
def test_a_host_that_is_lost_is_named(cluster: Cluster, how: str) -> None:
    """No connection is closed; the host without power ends its ranks by itself."""
    mark = fresh_mark()
    words = [sys.executable, "-m", "horovod.runner", "-np", "4", "-H", "t1:2,t2:2", "sh", "-c", WAITING]
    job = cluster.start("t1", words, **{MARK: mark})
    assert job.stdout is not None
    for _ in range(4):
        job.stdout.readline()
    began = time.monotonic()
    cluster.break_(how, "t2")
    _, err = job.communicate(timeout=40)
    assert "ranks 2, 3 on host t2 were lost: that host, or the network to it, has failed" in err
    assert job.returncode == 1 and time.monotonic() - began < busy.patience(20)
    all_end(mark, 25)


def test_in_a_slurm_allocation(cluster: Cluster, variables: dict[str, str], tmp_path: Path) -> None:  # noqa: F811
    result = cluster.horovodrun(
        "sh", "-c", "echo $(hostname) $HOROVOD_SIZE $TOKEN", TOKEN="mine", **variables
    )
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{host} 4 mine" for rank, host in enumerate(["t1", "t1", "t2", "t3"])
    ], result.stderr
    asked = (tmp_path / "log").read_text()
    assert asked.count("agents/agent.py") == 2  # one for each other host
    assert rig.PREFIX == "t"
