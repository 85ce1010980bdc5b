"""The script on docs/elastic.md trains with two ranks, elastic and not, and by the page's own commands."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from launching import environment, horovodrun
from page_blocks import blocks
from rank_jobs import run_ranks

PAGE = "docs/elastic.md"


@pytest.mark.parametrize("elastic", ["0", "1"])
def test_the_script(tmp_path: Path, elastic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_ELASTIC", elastic)
    script, _ = blocks(PAGE, "python")
    path = tmp_path / "page.py"
    path.write_text(script)
    done = run_ranks(2, [sys.executable, "-W", "error", str(path)], timeout=100)
    assert done.returncode == 0 and "2 epochs with 2 ranks" in done.stdout, done.stdout


def test_the_script_with_ddp(tmp_path: Path) -> None:
    _, script = blocks(PAGE, "python")
    path = tmp_path / "page.py"
    path.write_text(script)
    done = run_ranks(2, [sys.executable, str(path)], timeout=100)
    assert done.returncode == 0 and "20 steps with 2 ranks" in done.stdout, done.stdout


@pytest.mark.parametrize("number", range(4))
def test_the_commands(tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    script, _ = blocks(PAGE, "python")
    commands = blocks(PAGE, "sh")
    assert len(commands) == 4
    (tmp_path / "train.py").write_text(script)
    (tmp_path / "hosts.sh").write_text("#!/bin/sh\necho 127.0.0.1\necho 127.0.0.2:1\n")
    (tmp_path / "hosts.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(commands[number])
    if program == "torchrun":
        started = [sys.executable, "-m", "torch.distributed.run", *words]
        done = subprocess.run(started, capture_output=True, text=True, timeout=100, env=environment(""))
    else:
        assert program == "horovodrun"
        done = horovodrun(*words, limit=100)
    assert done.returncode == 0 and "2 epochs with 2 ranks" in done.stdout, done.stderr
