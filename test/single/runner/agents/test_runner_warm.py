"""The process that has loaded torch, and its agent: which ranks it serves, and the fallback if it cannot."""

# private: _end_orphans, _has_orphans, _server, _workers: an agent in the middle of a takeover

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import busy
import pytest
from host_agents import HostAgent, host_agent

from horovod.common import time_limits
from horovod.runner.agents import agent, frames
from horovod.runner.agents.frames import Order, packed_environment
from horovod.runner.agents.warm import WarmServer, can_be_warm

NULL = os.open(os.devnull, os.O_RDWR)
LEVEL = "HOROVOD_LOG_LEVEL"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python train.py", True),
        ("/opt/bin/python3.11 -u train.py --epochs 3", True),
        ("python -m package.train -x", True),
        ("python -m", False),
        ("python", False),
        ("python -c pass", False),
        ("python -O train.py", False),
        ("env python train.py", False),
        ("pythonic train.py", False),
        ("", False),
    ],
)
def test_what_a_fork_can_run(command: str, expected: bool) -> None:
    assert can_be_warm(command.split()) == expected


def environment() -> dict[bytes, bytes]:
    return dict(os.environb)


def stand_in(folder: Path, text: str) -> str:
    """An interpreter that runs other code instead of the server's file."""
    path = folder / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_one_that_has_ended_takes_nothing(tmp_path: Path) -> None:
    server = WarmServer(stand_in(tmp_path, "exit 3"), environment())
    assert busy.until(lambda: server.answers() or server.descriptor < 0) is True
    assert server.answers() == {}
    assert os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1]) in (3, -15)
    assert not server.ask(0, ["/", "python", "a.py"], {}, [NULL] * 4)


def test_one_that_loads_for_too_long_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(time_limits, "WARM_LOAD", 0.2)
    server = WarmServer(stand_in(tmp_path, "exec sleep 600"), environment())
    assert server.ask(0, ["/", "python", "a.py"], {}, [NULL] * 4), "it may come to it"
    assert server.answers() == {} and server.descriptor >= 0
    time.sleep(0.3)
    assert server.answers() == {} and server.descriptor < 0
    assert os.waitstatus_to_exitcode(os.waitpid(server.pid, 0)[1]) == -15
    assert "loading torch takes more than" in capfd.readouterr().err


def test_what_is_too_long_for_a_message_is_not_taken(tmp_path: Path) -> None:
    server = WarmServer(stand_in(tmp_path, "exec sleep 600"), environment())
    try:
        assert not server.ask(0, ["x" * (4 << 20)], {}, [NULL] * 4)
    finally:
        server.close()
        os.waitpid(server.pid, 0)


# the agent


class RestartingHost:
    """A real agent of a job that restarts ranks; `python` is the ranks' interpreter."""

    def __init__(self, agent: HostAgent, python: str) -> None:
        self._agent, self._python = agent, python
        self.hear = agent.hear
        variables = {**os.environb, b"HOROVOD_ELASTIC_RESTART": b"1"}
        agent.say(frames.frame(frames.ENVIRONMENT, packed_environment(variables)))

    def start(self, worker: int, cold: str) -> None:
        """`cold`: the shell command without a server."""
        words = ["sh", "-c", cold, "sh", "/", self._python, "a.py"]
        self._agent.say(Order(worker, words, {}).frame())

    def stop(self, worker: int) -> None:
        self._agent.say(frames.record(frames.STOP, {"worker": worker, "signal": 15}))


@contextmanager
def restarting_host(python: str) -> Iterator[RestartingHost]:
    with host_agent() as agent:
        yield RestartingHost(agent, python)


def answering(folder: Path, text: str) -> str:
    """A server that runs `text` on each request `asked`, and then waits for its end."""
    body = folder / "server.py"
    body.write_text(
        "import json, os, pathlib, socket, sys, time\n"
        "control = socket.socket(fileno=int(sys.argv[2]))\n"
        "asked = json.loads(socket.recv_fds(control, 1 << 20, 4)[0])\n"
        f"here = pathlib.Path({str(folder)!r})\n"
        "def answer(pid):\n    control.send(json.dumps({'worker': asked['worker'], 'pid': pid}).encode())\n"
        f"{text}\ncontrol.recv(1)\n"
    )
    return stand_in(folder, f'exec {sys.executable} -I -S {body} "$@"')


@pytest.mark.timeout(60)
def test_a_worker_that_waits_for_the_server_can_be_ended(tmp_path: Path) -> None:
    with restarting_host(stand_in(tmp_path, "exec sleep 600")) as host:
        host.start(3, "sleep 600")
        host.stop(3)
        assert host.hear(frames.ENDED) == {"worker": 3, "status": 15}


@pytest.mark.timeout(60)
def test_a_worker_that_the_server_cannot_make_starts_by_itself(tmp_path: Path) -> None:
    with restarting_host(answering(tmp_path, "answer(0)")) as host:
        host.start(3, f"touch {tmp_path}/cold; sleep 600")
        assert host.hear(frames.STARTED)["worker"] == 3
        busy.until((tmp_path / "cold").exists)
        host.stop(3)
        assert host.hear(frames.ENDED) == {"worker": 3, "status": 15}


@pytest.mark.parametrize("restarts", [True, False])
def test_commits_have_a_folder_if_workers_may_be_started_again(restarts: bool, tmp_path: Path) -> None:
    """The server ends with the agent."""
    said = tmp_path / "said"
    variables = {**os.environb, b"HOROVOD_ELASTIC_RESTART": b"1" if restarts else b"0"}
    with host_agent() as host:
        host.say(frames.frame(frames.ENVIRONMENT, packed_environment(variables)))
        host.say(Order(3, ["sh", "-c", f'echo "$HOROVOD_COMMITS_FOLDER" > {said}'], {}).frame())
        assert host.hear(frames.ENDED) == {"worker": 3, "status": 0}
        folder = said.read_text().strip()
        assert bool(folder) == restarts and (not folder or os.path.isdir(folder))
    assert not folder or not os.path.exists(folder)


LATE = """
while not (here / "go").exists():
    time.sleep(0.01)
if (maker := os.fork()) == 0:
    if (pid := os.fork()) == 0:
        control.close()
        os.execvp("sleep", ["sleep", "600"])
    (here / "made").write_text(str(pid))
    answer(pid)
    os._exit(0)
os.waitpid(maker, 0)
"""


@pytest.mark.timeout(60)
def test_what_is_made_for_a_worker_that_was_told_to_end_is_ended(tmp_path: Path) -> None:
    with restarting_host(answering(tmp_path, LATE)) as host:
        host.start(3, "sleep 600")
        host.stop(3)
        assert host.hear(frames.ENDED)["worker"] == 3
        (tmp_path / "go").touch()
        made = tmp_path / "made"
        busy.until(lambda: made.exists() and made.read_text())
        busy.until(lambda: busy.has_ended(int(made.read_text())))


def test_a_wrapper_that_comes_while_orphans_are_looked_for_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer has arrived, unread, when the agent finds it among its children."""
    ended = list[int]()
    monkeypatch.setattr(agent, "Wake", lambda: SimpleNamespace(descriptor=-1))
    monkeypatch.setattr(agent, "send", lambda pid, number: ended.append(pid))
    answers: dict[int, int] = {}

    def children() -> list[int]:
        answers[3] = 700
        return [500, 600, 700]  # the server, an orphan, the wrapper

    def taken() -> dict[int, int]:
        said = dict(answers)
        answers.clear()
        return said

    source, target = os.pipe()
    one = agent.Agent(source, target)
    monkeypatch.setattr(agent, "children", children)
    worker: Any = SimpleNamespace(pid=0, waits=lambda: worker.pid == 0)
    worker.become = lambda pid: setattr(worker, "pid", pid)
    one._workers = {3: worker}
    one._server = SimpleNamespace(pid=500, descriptor=1, answers=taken)  # type: ignore[assignment]
    one._has_orphans = True
    one._end_orphans()
    assert (worker.pid, ended, one._has_orphans) == (700, [600], True)
    for descriptor in (source, target):
        os.close(descriptor)


# the server


SERVES = """
import errno, os, signal, socket, sys
from horovod.runner.agents import warm_server

server, fork, scarce = os.getpid(), os.fork, sys.argv[2]


def a_fork():
    is_first = os.getpid() == server
    if scarce == ("the first" if is_first else "the second"):
        raise OSError(errno.EAGAIN, "no more processes")
    if not is_first:
        os.kill(os.getpid(), signal.SIGKILL)
    return fork()


os.fork = a_fork
warm_server.serve(socket.socket(fileno=int(sys.argv[1])))
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("scarce", ["the first", "the second", "killed"])
def test_a_server_says_what_it_cannot_make(scarce: str) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(30)
    words = [sys.executable, "-c", SERVES, str(theirs.fileno()), scarce]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, pass_fds=[theirs.fileno()], stderr=pipe, text=True) as process:
        theirs.close()
        for worker in (4, 5):  # and it continues
            asked = {"worker": worker, "words": ["/", "python", "a.py"], "variables": {}}
            socket.send_fds(ours, [json.dumps(asked).encode()], [NULL] * 4)
            assert json.loads(ours.recv(1 << 12)) == {"worker": worker, "pid": 0}
        ours.close()
        _, said = process.communicate(timeout=30)
    assert process.returncode == 0
    assert said.count("a rank cannot be forked: no more processes") == (0 if scarce == "killed" else 2)


FORKED = """
import os, sys
from horovod.runner.agents import warm_server

warm_server.load()
sys.modules["torch"].manual_seed(5)
os.environ["OMP_NUM_THREADS"] = "3"
warm_server.run_script([sys.argv[1]], ["<string>"])  # this, in the place of the server's own lines
"""
SCRIPT = """
import sys, threading, torch
from horovod.common.agent_messages import packed
print(torch.get_num_threads(), threading.active_count(), "torch._dynamo" in sys.modules)
print(torch.initial_seed() == 5)
packed({"x": "y" * (3 << 20)})
"""


@pytest.mark.timeout(120)
def test_a_script_finds_torch_as_a_process_of_its_own_would(tmp_path: Path) -> None:
    """Its own threads, compiler and random numbers, and tracebacks without lines of this package."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    told = {name: text for name, text in os.environ.items() if name not in ("OMP_NUM_THREADS", LEVEL)}
    words = [sys.executable, "-c", FORKED, str(script)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=100, env=told)
    assert (done.returncode, done.stdout) == (1, "3 1 True\nFalse\n"), done.stderr
    first, place, line, *others = done.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place.startswith(f'  File "{script}", line 6, in <module>') and "packed" in line
    assert not [other for other in others if "File" in other], done.stderr
    assert others[-1].startswith("ValueError: ")
