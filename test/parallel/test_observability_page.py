"""docs/observability.md: its Python, its command, its table of counters and the output it shows."""

import re
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from page_blocks import ROOT, blocks
from rank_jobs import run_ranks

import horovod.torch as hvd

PAGE = "docs/observability.md"


def shown() -> list[str]:
    return blocks(PAGE, "text")


def without_numbers(output: str) -> str:
    """Without the time, and what a busy machine or an edit of the source changes."""
    output = re.sub(r"\[[-\d :.]{26}: ", "[", output)
    return re.sub(r"for \d+ s:|\.cc:\d+", "N", output)


def test_the_script_and_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 5, "count the page's blocks here too, so that none is lost"
    path = tmp_path / "page.py"
    path.write_text("\n".join(pieces))
    monkeypatch.chdir(tmp_path)
    argv = [sys.executable, "-W", "error", str(path)]
    done = run_ranks(2, argv, timeout=100, env={"HOROVOD_LOG_LEVEL": "info"})
    assert done.returncode == 0, done.stdout
    for text in shown():
        assert without_numbers(text) in without_numbers(done.stdout), done.stdout


def test_the_command(tmp_path: Path) -> None:
    (command,) = blocks(PAGE, "sh")
    (script,) = blocks("README.md", "python")
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        ["bash", "-c", command.replace("horovodrun", f"{sys.executable} -m horovod.runner")],
        cwd=tmp_path,
        env=launching.environment("observability"),
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NEGOTIATE_ALLREDUCE" in (tmp_path / "timeline.json").read_text()


def test_every_counter_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:bytes|us|) *\| ", (ROOT / PAGE).read_text(), re.MULTILINE)
    hvd.init()
    try:
        assert rows == list(hvd.metrics())
    finally:
        hvd.shutdown()
