"""Which processes are a process' own, and end with it; and with mpirun's daemon, where it is cut off."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import busy
import pytest

from horovod.runner import daemon_link, processes

ENDS_DESCENDANTS = """
import subprocess, sys, time
from horovod.runner.processes import adopt_orphans, children, end_descendants
adopt_orphans()
subprocess.run(["sh", "-c", sys.argv[1]])
print(len(children()), flush=True)
end_descendants(patience=0.2)
print(len(children()), flush=True)
"""


@contextmanager
def sleeping() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "60"])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_children_are_those_that_run() -> None:
    with sleeping() as one, sleeping() as other:
        assert {one.pid, other.pid} <= set(processes.children())
        one.kill()
        assert one.wait() == -signal.SIGKILL
        found = set(processes.children())
        assert one.pid not in found and other.pid in found


def test_a_signal_for_nobody_is_told() -> None:
    with sleeping() as process:
        assert processes.send(process.pid, 0)
    assert not processes.send(process.pid, signal.SIGTERM)


def test_those_that_ended_are_counted_and_gone() -> None:
    with sleeping() as one, sleeping() as other:
        pids = {one.pid, other.pid}
        assert processes.reap() == 0
        for process in (one, other):
            process.kill()
        counted, deadline = 0, busy.limit(20)
        while counted < 2 and time.monotonic() < deadline:
            counted += processes.reap()
        assert counted == 2 and not pids & set(map(int, filter(str.isdigit, os.listdir("/proc"))))


def test_what_the_kernel_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="prctl"):
        processes.process_control(-1, 0)


def test_orphans_are_adopted_and_ended_by_force_if_need_be() -> None:
    for script in ("sleep 60 & sleep 60 &", "(trap '' TERM; sleep 60; sleep 60) & sleep 0.2; sleep 60 &"):
        words = [sys.executable, "-c", ENDS_DESCENDANTS, script]
        done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True)
        assert done.stdout.split() == ["2", "0"], done


TABLE = "  sl  local rem st queue tr retrnsmt uid timeout inode\n"
ROW = "   0: 0100007F:A3C3 0200007F:0016 01 00000010:00000000 01:00000014 {} 0 0 {} 4711\n"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that goes by the name of mpirun's daemon, and has a socket."""
    program = tmp_path / "prted"
    program.symlink_to("/bin/sleep")
    with socket.socket() as own, subprocess.Popen([program, "60"], pass_fds=[own.fileno()]) as process:
        while Path(f"/proc/{process.pid}/comm").read_text() != "prted\n":
            time.sleep(0.001)
        process.inode = os.fstat(own.fileno()).st_ino  # type: ignore[attr-defined]
        yield process
        process.kill()


class Proc:
    """`open` as daemon_link has it, with a table of connections of our own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, table: str) -> None:
        self.table = table
        monkeypatch.setattr(daemon_link, "open", self, raising=False)

    def __call__(self, path: str, **options: str) -> Any:
        if path.endswith("/net/tcp6"):
            return io.StringIO(TABLE)
        return io.StringIO(self.table) if path.endswith("/net/tcp") else open(path, **options)


def link_to(process: int, monkeypatch: pytest.MonkeyPatch) -> daemon_link.DaemonLink:
    with monkeypatch.context() as patch:
        patch.setattr(os, "getppid", lambda: process)
        return daemon_link.DaemonLink()


def test_a_daemon_that_gets_answers_is_left_alone(
    daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    link = link_to(daemon.pid, monkeypatch)
    assert link.look() and daemon.poll() is None
    Proc(monkeypatch, TABLE + ROW.format("00000004", daemon.inode) + ROW.format("00000009", 1))
    assert link.look() and daemon.poll() is None


def test_a_daemon_that_is_cut_off_is_ended_and_its_folder_too_if_it_must_be_killed(
    tmp_path: Path, daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder, other = tmp_path / f"prted.{daemon.pid}", tmp_path / "prted.1"
    for one in (folder, other):
        one.mkdir()
    sent = []
    monkeypatch.setattr(os, "kill", lambda *what: sent.append(what))
    link = link_to(daemon.pid, monkeypatch)
    Proc(monkeypatch, TABLE + ROW.format("00000005", daemon.inode))
    assert link.look() and folder.exists()
    assert link.look() and not folder.exists() and other.exists()
    assert sent == [(daemon.pid, signal.SIGTERM), (daemon.pid, signal.SIGKILL)]


def test_who_is_no_daemon_is_not_looked_at_again(
    daemon: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not link_to(os.getpid(), monkeypatch).look()  # mpirun itself, as far as a rank can see
    link = link_to(daemon.pid, monkeypatch)
    monkeypatch.setattr(os, "fork", lambda: 1)
    link.look_from_aside()  # this process is not the one that stays behind
    daemon.kill()
    daemon.wait()
    assert not link.look()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("there is nothing to look at"))
    link.look_from_aside()
