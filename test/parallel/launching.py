"""Start horovodrun in tests, and check that no process of a job is left."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import busy
import pytest

import horovod
from horovod.runner import launchers
from horovod.runner.errors import LaunchError

MARK = "HOROVOD_TEST_JOB"
HOST = os.uname().nodename


def _why_not() -> str:
    try:
        launchers.installed_mpirun()
    except LaunchError as error:
        return f"no mpirun: {error}"
    return ""


needs_mpirun = pytest.mark.skipif(bool(_why_not()), reason=_why_not())


def environment(mark: str, **more: str) -> dict[str, str]:
    """Return this environment with this interpreter's programs first, without settings of other tests."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("HOROVOD_")}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    packages = os.pathsep.join(filter(None, [str(Path(horovod.__file__).parents[1]), kept.get("PYTHONPATH")]))
    return {**kept, "PATH": path, "PYTHONPATH": packages, MARK: mark, **more}


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


def fresh_mark() -> str:
    return f"{os.getpid()}.{time.monotonic_ns()}"


@contextmanager
def running(command: Sequence[str], folder: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Start a program in its own session; at the end no process of it is left."""
    with subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def finished(
    command: Sequence[str], folder: Path, env: Mapping[str, str], limit: float
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; fail if that takes longer than ``limit`` seconds."""
    with running(command, folder, env) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # on which launchers end their ranks
            try:
                stdout, stderr = process.communicate(timeout=10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                stdout, stderr = process.communicate()
            pytest.fail(f"{command} took more than {limit} s\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def start(
    arguments: Sequence[str], mark: str, stdin: int = subprocess.DEVNULL, is_apart: bool = False, **more: str
) -> subprocess.Popen[str]:
    """Start a job. `is_apart`: in its own process group, for signals as from a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "horovod.runner", *arguments],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="surrogateescape",
        env=environment(mark, **more),
        start_new_session=is_apart,
    )


def all_end(mark: str, seconds: float) -> None:
    """Wait until no process of the job is left."""
    busy.until(lambda: not processes_of(mark), seconds)


def horovodrun(*arguments: str, limit: float = 60, **more: str) -> subprocess.CompletedProcess[str]:
    """Run a job to its end. Fail if it takes too long, or leaves a process."""
    mark = fresh_mark()
    process = start(arguments, mark, **more)
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate()
        raise AssertionError(
            f"horovodrun {arguments} took more than {limit} s: {out[-2000:]} {err[-2000:]}"
        ) from None
    assert not processes_of(mark), err
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


def processes_of(mark: str) -> list[str]:
    """Return the command lines of processes with our mark in their environment: those of the job."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                marked = f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0")
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue  # it has ended, or belongs to another user
            if marked and command:
                found.append(f"{folder.name}: {command}")
    return found
