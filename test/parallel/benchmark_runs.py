"""Run programs of benchmarks/ for tests, and parse their output and files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import launching

__all__ = ["BENCHMARKS", "cells", "document", "run"]

HERE = Path(__file__).parent
BENCHMARKS = HERE.parents[1] / "benchmarks"


def run(
    script: str, *words: str, code: int = 0, limit: float = 110, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program; fail unless it ends with this exit code.

    Ranks, and torch's threads in each, would compete for the cores of a small machine, so they have one
    thread.
    """
    environment = launching.environment(launching.fresh_mark(), OMP_NUM_THREADS="1", **more)
    environment["PYTHONPATH"] += f"{os.pathsep}{HERE}"  # emulated_place.py
    done = launching.finished([sys.executable, str(BENCHMARKS / script), *words], HERE, environment, limit)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def document(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def cells(output: str) -> list[list[str]]:
    """Return the rows of every table in the output, without heading and rule."""
    lines = [line.strip("|") for line in output.splitlines() if "|" in line]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines]
    headings = {tuple(rows[i - 1]) for i, row in enumerate(rows) if row[0].startswith("--")}
    return [row for row in rows if tuple(row) not in headings and not row[0].startswith("--")]
