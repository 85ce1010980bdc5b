"""benchmarks/cluster.py and transports.py run on hosts, and print kept figures. Speed is not checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import rig
from page_blocks import arguments_of

BENCHMARKS = rig.ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import cluster as benchmark  # noqa: E402 -- of the folder benchmarks


def run(program: str, *words: str) -> str:
    command = [sys.executable, str(BENCHMARKS / program), *words]
    environment = rig.launching.environment("cluster")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_page_are_understood() -> None:
    commands = arguments_of("benchmarks/cluster.py", "docs/benchmarks.md")
    assert len(commands) == 4
    for words in commands:
        assert benchmark.arguments(words).parts


@pytest.mark.slow
@pytest.mark.timeout(330)  # some 30 s on two idle cores
def test_every_part_runs_and_is_shown_again(hosts_can_be: None, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="MPI_Allreduce is called through mpi4py, which is not installed")
    out, trained = tmp_path / "out.json", ["DDP PowerSGD", "bit8"]
    options = ("--quick", "--only", "MPI", "gloo half", "int4", "--trained", *trained, "--out", str(out))
    shown = run("cluster.py", *options)
    figures = json.loads(out.read_text())
    for row in figures["allreduce"]:
        assert row["sent"] > 0.99 * row["needed"] and row["times_limit"] > 0
    assert {row["contender"] for row in figures["allreduce"]} == {"MPI", "gloo half", "int4"}
    (rows,) = figures["training"]
    assert [row["contender"] for row in rows] == ["alone", *trained]
    assert [(row["contender"], row["hosts"]) for row in figures["scaling"]] == [
        ("alone", 1), ("DDP PowerSGD", 2), ("bit8", 2),
    ]  # fmt: skip
    pytest.importorskip("matplotlib", reason="plots are drawn with matplotlib, which is not installed")
    assert run("cluster.py", "--shown", str(out), "--plots", str(tmp_path)) == shown
    drawn = {path.name for path in tmp_path.glob("cluster_*.svg")}
    assert drawn == {f"cluster_{part}.svg" for part in benchmark.PARTS}


@pytest.mark.timeout(200)
def test_transports_are_compared(hosts_can_be: None, tmp_path: Path) -> None:
    """benchmarks/transports.py runs with one size and one round, and with 8 bytes to and fro."""
    out = str(tmp_path / "out.csv")
    said = run("transports.py", "--bytes", "1000", "--rounds", "1", "--connections", "2", "--out", out)
    assert run("transports.py", "--shown", out) == said
    rows = [line.split("|")[1:-1] for line in said.splitlines()[2:]]
    assert [row[2].strip() for row in rows] == ["none", "bit8", "int4"]
    assert all(len(row) == 6 and "s/GB" in cell for row in rows for cell in row[3:])
    said = run("transports.py", "--latency")
    assert re.search(r"^8 bytes, asleep: socket .* us, tcp .* us, [\d.]+x$", said, re.MULTILINE)
