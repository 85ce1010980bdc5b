"""docs/lab.md: its script takes part in the lab, its commands plan what they say, its tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import launching
import pytest
from example_runs import EXAMPLES, real_mnist
from lab_runs import logs
from page_blocks import ROOT, blocks, commands

from horovod.lab import logs as log_reader
from horovod.lab.command_line import parse

PAGE = "docs/lab.md"
FLAG = re.compile(r"(?<![\w-])(--?[a-zA-Z][\w-]*)")
OWN = "--script my_train.py"
COMMANDS = commands(PAGE)
RUNS = {  # of each of the page's commands that plans runs; the one of the page's script is run below
    "python -m horovod.lab --np 1 2 4 --compression none bit16 bit8 --epochs 3 --seeds 3": 21,
    "python -m horovod.lab --list": 21,
    "python -m horovod.lab -H node1:2,node2:2": 21,
    "python -m horovod.lab --np 1 2 --made-hosts 2 --rates none 1gbit --epochs 1 --seeds 1": 10,
}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the page's script in it."""
    (script,) = blocks(PAGE, "python")
    (tmp_path / "my_train.py").write_text(script)
    return tmp_path


def typed(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=launching.environment("lab-page", PATH=path),
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("command", [line for line in COMMANDS if line in RUNS])
def test_a_command_plans_its_runs(command: str, tmp_path: Path) -> None:
    """Done in full, they take minutes each."""
    listed = typed(command if command.endswith("--list") else f"{command} --list", tmp_path).splitlines()
    assert len(listed) == RUNS[command]
    assert all(line.startswith("missing") for line in listed)


def test_every_command_has_a_test() -> None:
    others = [line for line in COMMANDS if line not in RUNS]
    makes, (own,) = [line for line in others if line.startswith("make")], [s for s in others if OWN in s]
    assert sorted([*makes, own, *RUNS]) == sorted(COMMANDS)
    assert makes == ["make lab", 'make lab LAB="--lang zh --np 1 2"']


def test_the_script_of_the_page(folder: Path) -> None:
    (command,) = [line for line in COMMANDS if OWN in line]
    typed(command, folder)
    found = logs(folder / "lab-results")
    assert [records[0]["ranks"] for records in found.values()] == [2, 2, 1]
    for records in found.values():
        steps = [record for record in records if record["event"] == "step"]
        assert len(steps) == 2 * 80 / records[0]["ranks"]
        assert (records[0]["ranks"] > 1) == any(step["wait_seconds"] for step in steps)
        assert all(0 <= step["wait_seconds"] <= step["seconds"] for step in steps)
        assert records[-2]["accuracy"] > 0.85  # always saying "inside" is right in half of the cases
        assert records[-1]["identical"] is True
    none, bit8 = (
        next(records[-1] for name, records in found.items() if name.startswith(f"np2-{kind}"))
        for kind in ("none", "bit8")
    )
    # The 8192 weights travel in 8 bits, and the 2050 biases as they are.
    assert none["bytes_sent"] / bit8["bytes_sent"] == pytest.approx(4 * 10242 / (8192 + 4 * 2050), rel=0.02)
    assert (folder / "lab-results" / "report.html").exists()


def test_the_script_without_the_lab(folder: Path) -> None:
    """The recorder does nothing, also not on any rank of several."""
    typed("python my_train.py && horovodrun -np 2 python my_train.py", folder)
    assert [path.name for path in folder.iterdir()] == ["my_train.py"]


@pytest.mark.skipif(real_mnist() is None, reason="no real MNIST: neither $MNIST_DATA_DIR nor ../shared")
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("command", ["make lab", 'make lab LAB="--lang zh --np 1 2"'])
def test_make_lab(command: str, tmp_path: Path) -> None:
    """In a virtual environment that is this one under another name, where nothing is left to install."""
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
    typed(f"make lab VENV={made} LAB={shlex.quote(options)}", ROOT)
    records = logs(tmp_path / "out")
    assert all("-seed1-epochs1" in name for name in records)
    assert [found[0]["ranks"] for found in records.values()] == [2, 1]
    plan = json.loads(next((tmp_path / "out").glob("runs/np2*/plan.json")).read_text())
    assert plan["script"] == str((EXAMPLES / "pytorch_mnist_compress.py").relative_to(ROOT))
    language = re.search(r'<html lang="(\w+)', (tmp_path / "out" / "report.html").read_text())
    assert language and language[1] == ("zh" if more else "en")


def test_the_tables_are_complete() -> None:
    page = (ROOT / PAGE).read_text()
    rows = re.findall(r"^\| `(step|epoch|final)` \| (`.*?`) \|", page, re.MULTILINE)
    told: dict[str, set[str]] = {}
    for event, fields in rows:
        told.setdefault(event, set()).update(re.findall(r"`(\w+)`", fields))
    expected = {event: set(fields) for event, fields in log_reader.FIELDS.items()}
    expected["final"] |= set(log_reader.TRAFFIC)
    assert told == expected
    common = re.search(r"Every record has\n\n(.*?)\n\n", page, re.DOTALL)
    assert common and set(re.findall(r"^\| (`.*?`) \|", common[1], re.MULTILINE)) == {
        "`event`",
        "`dataset`",
        "`compression`",
        "`ranks`, `seed`",
        "`epoch`",
    }


def test_the_options_are_those_of_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"])
    helped = capsys.readouterr().out.partition("examples:")[0]
    flags = set(FLAG.findall(helped))
    table = re.search(r"^\| option \|.*?\n\n", (ROOT / PAGE).read_text(), re.MULTILINE | re.DOTALL)
    assert table
    first = " ".join(row.split("|")[1] for row in table[0].strip().splitlines())
    assert set(FLAG.findall(first)) == flags - {"-h", "--help", "-m"}
