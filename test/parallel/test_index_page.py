"""docs/index.md: its script, its commands, the output it shows, and its figures."""

import re
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks, commands
from test_readme import BY_OTHERS

typed.needs_mpirun()
pytestmark = pytest.mark.quick
PAGE = "docs/index.md"
COMMANDS = commands(PAGE)
SHOWN = blocks(PAGE, "text")


def test_the_commands_are_these() -> None:
    assert [command for command in COMMANDS if command not in BY_OTHERS] == [
        "horovodrun --check-build",
        "horovodrun -np 2 python first.py",
        "horovodrun -np 2 --compression bit8 python first.py",
    ]


@pytest.mark.parametrize(("command", "shown"), list(zip(COMMANDS[2:], SHOWN, strict=True)))
def test_training(command: str, shown: str, tmp_path: Path) -> None:
    (script,) = blocks(PAGE, "python")
    (tmp_path / "first.py").write_text(script)
    done = typed.run(command, tmp_path)
    said = r"((?:\[0\]<stderr>:horovod: .*\n)*)"
    pattern = said + r"\[0\]<stdout>:loss ([\d.]+), 2 processes, ([\d.]+) MB sent\n"
    told, here = (re.fullmatch(pattern, text) for text in (shown, done.stderr + done.stdout))
    assert told and here, done.stderr + done.stdout
    assert here[1] == told[1]
    assert float(here[2]) == pytest.approx(float(told[2]), abs=0.002)
    assert here[3] == told[3]


def test_checking_the_build(tmp_path: Path) -> None:
    assert "[X] MPI" in typed.output_of(COMMANDS[1], tmp_path)


def test_the_measured_figures_are_those_of_the_benchmarks() -> None:
    rows = (ROOT / "docs" / "benchmarks.md").read_text()
    figures = re.search(r"on ([\d.]+) pictures per second instead of ([\d.]+)", (ROOT / PAGE).read_text())
    assert figures
    assert re.search(rf"^\| bit8 +\| +{figures[1]} \|", rows, re.MULTILINE)
    assert re.search(rf"^\| none +\| +{figures[2]} \|", rows, re.MULTILINE)
