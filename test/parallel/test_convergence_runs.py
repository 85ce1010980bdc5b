"""benchmarks/convergence.py with runs of a few steps: the files it keeps, does not repeat, and writes."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import benchmark_runs
import pytest
from example_runs import needs_mnist, real_mnist

pytestmark = pytest.mark.timeout(400)

COMPRESSIONS = ["none", "bit8"]


def run(out: Path, *words: str, **more: str) -> str:
    """Return the benchmark's output for two seeds of every compression at 4 steps."""
    few = ["--steps", "4", "--seeds", "2", "--max-seeds", "2", "--compressions", *COMPRESSIONS[1:]]
    return benchmark_runs.run("convergence.py", "--out", str(out), *few, *words, limit=180, **more).stdout


def records(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    loaded = [json.loads(file.read_text()) for file in folder.glob("*.json")]
    return {(record["compression"], record["seed"]): record for record in loaded}


def test_runs_are_kept_compared_and_not_done_again(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws with matplotlib, which is not installed")
    file = tmp_path / "convergence_language.csv"
    file.write_text("old")
    drawing = ["--tasks", "language", "--plots", str(tmp_path), "--into", str(tmp_path)]
    first = run(tmp_path, *drawing)
    assert "4/4: language, bit8, seed 2" in first
    kept = records(tmp_path / "language")
    assert kept.keys() == {(name, seed) for name in COMPRESSIONS for seed in (1, 2)}
    for record in kept.values():
        assert record["identical"] and len(record["training_losses"]) == 4
        assert 3 < record["loss"] < 5.5  # below ln(256), the loss at first, but not far
    # Seeds begin differently. Compressions of one seed begin alike; then bit8 rounds.
    assert kept["none", 1]["training_losses"][0] == kept["bit8", 1]["training_losses"][0]
    assert kept["none", 1]["training_losses"][0] != kept["none", 2]["training_losses"][0]
    assert kept["none", 1]["checksum"] != kept["bit8", 1]["checksum"]
    assert kept["none", 1]["bytes_sent"] > 3.5 * kept["bit8", 1]["bytes_sent"] > 0

    table = first[first.index("#### Task language") :]
    with file.open() as written:
        rows = {row["compression"]: row for row in csv.DictReader(written)}
    assert list(rows) == COMPRESSIONS and all(f"| {row['loss']} |" in table for row in rows.values())
    assert float(rows["none"]["KB per step"]) > 3.5 * float(rows["bit8"]["KB per step"])
    for name in ("convergence_language.svg", "convergence_differences.svg"):
        assert "bit8" in (tmp_path / name).read_text()
        assert (tmp_path / name).stat().st_size < 150_000

    assert run(tmp_path, "--tasks", "language", "--finished-only").strip() == table.strip()

    # Alone in its job a run ends with the same bits as after others; the other results are reused.
    (tmp_path / "language" / "bit8-seed2.json").unlink()
    second = run(tmp_path, "--tasks", "language")
    assert "1/1: language, bit8, seed 2" in second
    assert records(tmp_path / "language")["bit8", 2]["checksum"] == kept["bit8", 2]["checksum"]


@needs_mnist
def test_mnist_is_judged_by_its_accuracy(tmp_path: Path) -> None:
    printed = run(tmp_path, "--tasks", "mnist", MNIST_DATA_DIR=str(real_mnist()))
    assert "| bit8" in printed and "difference, points" in printed
    for record in records(tmp_path / "mnist").values():
        assert record["data"] == "mnist" and 0.1 < record["accuracy"] < 0.99
        assert record["curve"][-1]["step"] == 4


def test_a_compression_that_does_not_exist_is_said_before_the_first_run(tmp_path: Path) -> None:
    words = ["--out", str(tmp_path), "--tasks", "language", "--compressions", "smoke"]
    done = benchmark_runs.run("convergence.py", *words, limit=180, code=1)
    assert "smoke" in done.stderr
    assert "seed 1" not in done.stdout
