"""Runs a page's commands as a reader would type them, with this copy of the package."""

from __future__ import annotations

import os
import subprocess
import sys
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
    command: str, folder: Path, *, limit: float = LIMIT, imports_from_it: bool = False, **more: str
) -> subprocess.CompletedProcess[str]:
    """A command line, in a folder that has what the page tells to save; horovodrun is on the PATH.

    imports_from_it: with the folder on PYTHONPATH.
    """
    program = folder / "bin" / "horovodrun"
    if not program.exists():
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec {sys.executable} -m horovod.runner "$@"\n')
        program.chmod(0o755)
    environment = launching.environment(launching.fresh_mark(), OMP_NUM_THREADS="1", **more)
    environment["PATH"] = f"{program.parent}:{environment['PATH']}"
    if imports_from_it:
        environment["PYTHONPATH"] += f"{os.pathsep}{folder}"
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=limit,
        check=False,
    )


def output_of(command: str, folder: Path, **more: str) -> str:
    """What a command that must succeed prints."""
    done = run(command, folder, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
