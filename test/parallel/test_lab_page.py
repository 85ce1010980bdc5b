"""docs/lab.md: its script takes part in the lab, and `make lab` works as described."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
import typed
from example_runs import EXAMPLES, needs_mnist, real_mnist
from lab_runs import logs
from page_blocks import ROOT, blocks, commands

PAGE = "docs/lab.md"
pytestmark = pytest.mark.timeout(300)


def test_the_script_of_the_page(tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "python")
    (tmp_path / "my_train.py").write_text(script)
    (command,) = [line for line in commands(PAGE) if "--script" in line]
    typed.output_of(command, tmp_path, limit=280)
    found = logs(tmp_path / "lab-results")
    assert [records[0]["ranks"] for records in found.values()] == [2, 2, 1]
    for records in found.values():
        steps = [record for record in records if record["event"] == "step"]
        assert len(steps) == 2 * 80 / records[0]["ranks"]
        assert (records[0]["ranks"] > 1) == any(step["wait_seconds"] for step in steps)
        assert all(0 <= step["wait_seconds"] <= step["seconds"] for step in steps)
        assert records[-2]["accuracy"] > 0.85  # always answering "inside" is right in half of the cases
        assert records[-1]["identical"] is True
    none, bit8 = (
        next(records[-1] for name, records in found.items() if name.startswith(f"np2-{kind}"))
        for kind in ("none", "bit8")
    )
    # The 8192 weights travel in 8 bits, and the 2050 biases exactly.
    assert none["bytes_sent"] / bit8["bytes_sent"] == pytest.approx(4 * 10242 / (8192 + 4 * 2050), rel=0.02)
    assert (tmp_path / "lab-results" / "report.html").exists()


@needs_mnist
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("command", [line for line in commands(PAGE) if line.startswith("make")])
def test_make_lab(command: str, tmp_path: Path) -> None:
    """A virtual environment that is this one under another name, in which nothing is left to install."""
    made = tmp_path / "venv"
    python = made / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    built_for = f".developer-{os.environ.get('HOROVOD_DEVELOPER') or 0}"
    for stamp in (".made", ".build-needs", ".torch", built_for, ".package", ".base", ".examples", ".lab"):
        (made / stamp).touch()
    short = f"--np 1 2 --compression bit8 --out {tmp_path}/out -- --max-steps 3"
    more = re.search('LAB="(.*)"', command)
    options = f"{more[1]} {short}" if more else short
    words = f"make -C {ROOT} lab VENV={made} LAB={shlex.quote(options)}"
    typed.output_of(words, tmp_path, limit=280, MNIST_DATA_DIR=str(real_mnist()))
    records = logs(tmp_path / "out")
    assert all("-seed1-epochs1" in name for name in records)
    assert [found[0]["ranks"] for found in records.values()] == [2, 1]
    plan = json.loads(next((tmp_path / "out").glob("runs/np2*/plan.json")).read_text())
    assert plan["script"] == str((EXAMPLES / "pytorch_mnist_compress.py").relative_to(ROOT))
    language = re.search(r'<html lang="(\w+)', (tmp_path / "out" / "report.html").read_text())
    assert language and language[1] == ("zh" if more else "en")
