"""Run a page's commands as readers type them, with this copy of the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import launching

LIMIT = 100.0  # seconds for one command


def run(
    command: str,
    folder: Path,
    *,
    limit: float = LIMIT,
    imports_from_it: bool = False,
    mark: str = "",
    **more: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command line in a folder with the files that the page lists; horovodrun is on the PATH.

    imports_from_it: with the folder on PYTHONPATH. mark: in the environment, to find the processes of the
    command.
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
    return launching.finished(["bash", "-c", command], folder, environment, limit)


def output_of(command: str, folder: Path, limit: float = LIMIT, **more: str) -> str:
    """Return the output of a command that must succeed."""
    done = run(command, folder, limit=limit, **more)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout
