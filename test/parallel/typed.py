"""Runs a page's commands as a reader would type them, with this copy of the package."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import launching
import pytest

from horovod.runner import launchers
from horovod.runner.errors import LaunchError

LIMIT = 100.0  # seconds for one command


def needs_mpirun() -> None:
    """Skip the module where no job can be started."""
    try:
        launchers.installed_mpirun()
    except LaunchError as error:
        pytest.skip(f"no mpirun: {error}", allow_module_level=True)
    pytest.importorskip("horovod._native", reason="the native core is not built")


def run(
    command: str,
    folder: Path,
    *,
    limit: float = LIMIT,
    imports_from_it: bool = False,
    mark: str = "",
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """A command line, in a folder that has what the page tells to save; horovodrun is on the PATH.

    imports_from_it: with the folder on PYTHONPATH.
    mark: in the environment, by which the processes of it are found.
    """
    program = folder / "bin" / "horovodrun"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m horovod.runner "$@"\n')
        program.chmod(0o755)
    environment = launching.environment(mark or launching.fresh_mark(), **{"OMP_NUM_THREADS": "1", **more})
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    if imports_from_it:
        environment["PYTHONPATH"] += f"{os.pathsep}{folder}"
    words = ["bash", "-c", command]
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGTERM)  # launchers end their ranks on this one
            time.sleep(3)
            os.killpg(process.pid, signal.SIGKILL)
            stdout, stderr = process.communicate()
            pytest.fail(f"{command} took more than {limit} s\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(words, process.returncode, stdout, stderr)


def output_of(command: str, folder: Path, limit: float = LIMIT, **more: str) -> str:
    """What a command that must succeed prints."""
    done = run(command, folder, limit=limit, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
