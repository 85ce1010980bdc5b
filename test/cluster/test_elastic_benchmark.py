"""benchmarks/elastic.py: cells are jobs on hosts, whose results are kept and shown. Speed is not checked."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import rig
from page_blocks import arguments_of

sys.path.insert(0, str(rig.ROOT / "benchmarks"))
import elastic as benchmark


def test_the_commands_of_the_page_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    commands = arguments_of("benchmarks/elastic.py", "docs/benchmarks.md")
    assert len(commands) >= 3
    names = [cell.name for cell in benchmark.CELLS]
    for words in commands:
        chosen = benchmark.arguments(words)
        assert all(any(name.startswith(only) for name in names) for only in chosen.only), chosen.only
    assert benchmark.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == names


def test_what_is_wrong_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"asked": "1.5 s", "seconds": [0.5, 0.7, 2.0], "complaints": ["epoch 3 lost 2 samples"]}
    (tmp_path / "kill -9 of a worker.json").write_text(json.dumps(found))
    assert benchmark.main(["--shown", str(tmp_path)]) == 0
    row = [cell.strip() for cell in capsys.readouterr().out.splitlines()[-1].strip("|").split("|")]
    assert row == ["kill -9 of a worker", "0.70 s", "2.00 s", "3", "1.5 s", "epoch 3 lost 2 samples"]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("cell", ["kill -9 during a recovery", "launcher killed"])
def test_a_cell(hosts_can_be: None, cell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--only", cell, "--times", "1", "--results", str(tmp_path)]
    assert benchmark.main(words) == 0, capsys.readouterr()
    found = json.loads((tmp_path / f"{cell}.json").read_text())
    assert len(found["seconds"]) == 1 and found["complaints"] == []
    begun = (tmp_path / f"{cell}.json").stat().st_mtime_ns
    assert benchmark.main(words) == 0, capsys.readouterr()
    assert (tmp_path / f"{cell}.json").stat().st_mtime_ns == begun, "it is not measured again"
