"""scripts/show_build.py prints a build's decisions and progress, logs output, shows the end on failure."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "scripts"))
import show_build

SLOW = "echo '[1/2] Building CXX object CMakeFiles/x.dir/a.cc.o'; sleep 0.5; echo '  horovod: no CUDA'"


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(show_build, "LOGS", tmp_path / "build")
    monkeypatch.setattr(show_build, "EVERY", 0.1)
    return tmp_path / "build" / "build.log"


def test_without_a_terminal_it_says_now_and_then_how_far_it_is(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show_build.run(["bash", "-c", SLOW]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  0 s  [1/2] Building CXX object a.cc.o" in lines
    assert "no CUDA" in lines
    assert log.read_text().splitlines()[-1] == "  horovod: no CUDA"


def test_a_command_that_says_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_build.run(["/bin/sleep", "0.3"]) == 0
    assert re.search(r"^  \d+ s  sleep$", capsys.readouterr().out, re.MULTILINE)


def test_a_failure_shows_the_end_of_what_was_said(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show_build.run(["bash", "-c", "seq 100; echo 'a.cc:1: error' >&2; exit 3"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2:] == ["a.cc:1: error", f"all of it: {log}"]
    assert "62" in lines and "61" not in lines


def test_what_is_installed_leaves_the_log_of_the_build(log: Path) -> None:
    show_build.run(["echo", "compiled"])
    show_build.run(["echo", "installed"], log_name="install.log")
    assert (log.read_text(), log.with_name("install.log").read_text()) == ("compiled\n", "installed\n")


def test_on_a_terminal_there_is_one_line() -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, show_build.__file__, "bash", "-c", SLOW]
    subprocess.run(command, stdout=theirs, check=True, timeout=60)
    os.close(theirs)
    said = os.read(ours, 100_000).decode()
    assert said.count("\n") == 1 and "no CUDA\r\n" in said
    assert "\r\033[K  0 s  [1/2] Building CXX object a.cc.o" in said
