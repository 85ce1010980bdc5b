"""benchmarks/autotune.py: cells are jobs that tune themselves, whose results are kept and shown."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest
from page_blocks import ROOT
from rank_jobs import mpirun

sys.path.insert(0, str(ROOT / "benchmarks"))
import autotune as benchmark

PAGE = ROOT / "docs" / "benchmarks.md"


def test_the_commands_of_the_page_are_understood(capsys: pytest.CaptureFixture[str]) -> None:
    lines = re.findall(r"^python benchmarks/autotune\.py (.*)$", PAGE.read_text(), re.MULTILINE)
    assert len(lines) >= 3
    names = [cell.name for make in benchmark.CELLS.values() for cell in make()]
    for line in lines:
        chosen = benchmark.arguments(shlex.split(line, comments=True))
        assert all(any(name.startswith(only) for name in names) for only in chosen.only), chosen.only
    assert benchmark.main(["--list"]) == 0
    assert capsys.readouterr().out.splitlines() == names


def test_what_the_start_cost_and_what_was_found_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (cell,) = [each for each in benchmark.wrong() if each.name == "one connection, 20 ms"]
    sweep = benchmark.sweep_of(cell)
    blocks = [0.3 if connections == "1" else 0.2 for connections in sweep[benchmark.CONNECTIONS]]
    once = [seconds for seconds in blocks for _ in sweep[benchmark.MESSAGE]]
    document = {
        "tuning": {"settings": {"HOROVOD_TCP_CONNECTIONS": "4"}, "began_with": {}, "steps": 385},
        "times": {name: [0.2] * 5 for name in ("tuned", "default", "best of the sweep")},
        "watching": {"watching": [0.2] * 5, "off": [0.2] * 5},
        "share_of_the_tuner": 0.001,
        "swept": {"once": once},
    }
    (tmp_path / f"{cell.name}.json").write_text(json.dumps(document))
    assert benchmark.main(["--shown", str(tmp_path)]) == 0
    row = [text.strip() for text in capsys.readouterr().out.splitlines()[2].strip("|").split("|")]
    assert row[:3] == [cell.name, "200 ms", "1.50x"]
    assert row[-2:] == ["385", "tcp_connections=4"]


@pytest.mark.timeout(200)
def test_a_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mpirun()
    few = ["--pairs", "2", "--steps", "1", "--most-steps", "40", "--results", str(tmp_path)]
    words = ["--cells", "cost", "--only", "cost, one host", *few]
    assert benchmark.main(words) == 0, capsys.readouterr()
    found = json.loads((tmp_path / "cost, one host.json").read_text())
    assert found["tuning"]["steps"] <= 40 and found["again"]["steps"] == 0
    assert benchmark.is_same(found, found["again"])
    assert benchmark.main(words) == 0, "it is not measured again"
