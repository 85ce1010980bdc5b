"""Ctrl-C during `make test` ends it at once, without output that looks like a failed test."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import busy
import pytest

ROOT = Path(__file__).resolve().parents[3]
BEGINS_AND_WAITS = "#!/bin/sh\necho begun >>'{}'\nexec sleep 60\n"


def interrupted(command: list[str], begun: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """The output and exit status of a command that gets Ctrl-C from a terminal once `begun` exists."""
    process = subprocess.Popen(
        command,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # exactly its processes get the signal
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # the tests' parent may ignore it
    )
    limit = busy.limit(60)
    while not begun.exists() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    has_begun = begun.exists()
    os.killpg(process.pid, signal.SIGINT if has_begun else signal.SIGKILL)
    out, error = process.communicate(timeout=60)
    assert has_begun, out + error
    return subprocess.CompletedProcess(command, process.returncode, out, error)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "bin" / "pytest"
    path.parent.mkdir()
    path.write_text(BEGINS_AND_WAITS.format(tmp_path / "begun"))
    path.chmod(0o755)
    return path


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_the_second_half_of_make_test_does_not_begin(program: Path, tmp_path: Path) -> None:
    command = ["make", "-C", str(ROOT), "-o", "check", "test", f"VENV={tmp_path}"]
    done = interrupted(command, tmp_path / "begun", MAKEFLAGS="")
    assert (tmp_path / "begun").read_text() == "begun\n"
    assert done.returncode != 0
    assert done.stdout.endswith("stopped by Ctrl-C\n")


@pytest.mark.parametrize("script", ["show_build.py", "check_cpp.py"])
def test_a_script_shows_no_traceback(script: str, program: Path, tmp_path: Path) -> None:
    """The waiting program is show_build.py's command, or the clang-format beside check_cpp.py's Python."""
    waiting = program.rename(program.with_name("clang-format"))
    python = program.with_name("python")
    python.symlink_to(sys.executable)
    command = [str(python), str(ROOT / "scripts" / script)]
    command += [str(waiting)] if script == "show_build.py" else []
    done = interrupted(command, tmp_path / "begun")
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")
