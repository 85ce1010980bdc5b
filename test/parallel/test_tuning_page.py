"""docs/tuning.md: its script with one process and with two, its commands, and figures that were measured."""

import re
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks, commands

typed.needs_mpirun()
PAGE = "docs/tuning.md"
TEXT = (ROOT / PAGE).read_text()
MEASURED = (ROOT / "docs" / "benchmarks.md").read_text()
COMMANDS = [command for command in commands(PAGE) if "tune" not in command]
TUNING = [command for command in commands(PAGE) if "tune" in command]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pieces = blocks(PAGE, "python")
    assert len(pieces) == 4, "count the page's blocks here too, so that none is lost"
    (tmp_path / "page.py").write_text("\n".join(pieces))
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0])
    return tmp_path


def test_the_script_with_two_ranks(folder: Path) -> None:
    printed = typed.output_of("horovodrun -np 2 python -W error page.py", folder)
    sent = dict(re.findall(r"^\[0\]<stdout>:(\w+): .* ([\d.]+) MB sent", printed, re.MULTILINE))
    # 525,568 gradients of 4 bytes; bit8 sends its matrices in 8.06 bits for each number.
    assert float(sent["none"]) == pytest.approx(2.10, abs=0.02)
    assert float(sent["bit8"]) == pytest.approx(0.53, abs=0.02)


def test_the_script_alone(folder: Path) -> None:
    printed = typed.output_of("python -W error page.py", folder)
    assert re.findall(r", ([\d.]+) MB sent", printed) == ["0.00", "0.00"]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command(command: str, folder: Path) -> None:
    assert "with 2 processes" in typed.output_of(command, folder)


def test_the_commands_of_tuning(folder: Path) -> None:
    """README's script makes few steps. The launch tries but one thing: the others are set, and so decided."""
    own = {
        "HOROVOD_AUTOTUNE_CACHE": str(folder / "tuned"),
        "HOROVOD_AUTOTUNE_MAX_STEPS": "40",
        "HOROVOD_AUTOTUNE_WARMUP_SAMPLES": "1",
    }
    autotuned, show, explain, clear, launch = TUNING
    assert "with 2 processes" in typed.output_of(autotuned, folder, **own)
    assert "HOROVOD_FUSION_THRESHOLD=" in typed.output_of(show, folder, **own)
    assert "best third goes on" in typed.output_of(explain, folder)
    assert "1 file(s) removed" in typed.output_of(clear, folder, **own)
    decided = {"GLIBC_TUNABLES": "glibc.malloc.arena_max=8", "LD_PRELOAD": ""}
    few = launch.replace("--tune-launch", "--tune-launch --tune-launch-steps 3")
    said = typed.output_of(few, folder, **decided)
    assert "seconds a step" in said and "--bind auto" in said


def test_every_step_of_the_table_was_measured() -> None:
    row = r"^\| ([\d.]+) " + r"\| ([\d.]+) s " * 3 + r"\| ([\d.]+ s)? ?\|$"
    rows = re.findall(row, TEXT, re.MULTILINE)
    assert len(rows) == 2
    for ratio, computing, none, bit8, int4 in rows:
        begin = re.search(rf"compute C = {computing} s, .* W/C = {ratio}\*\*", MEASURED)
        assert begin, f"docs/benchmarks.md has no table for W/C = {ratio}, C = {computing} s"
        table = MEASURED[begin.end() :].split("\n**")[0]
        for contender, step in (("DDP", none), ("bit8", bit8), ("int4", int4.removesuffix(" s"))):
            pattern = rf"^\| {contender} +\| +[\d.]+ \| {step or '-'} s \|"
            assert not step or re.search(pattern, table, re.MULTILINE), (contender, step)


def test_the_speed_ups_were_measured() -> None:
    ups = re.findall(r"([\d.]+) times faster", TEXT)
    assert ups == ["1.21", "2.87", "3.84"]
    assert all(re.search(rf"\| +{up} \| +[\d.]+ \|$", MEASURED, re.MULTILINE) for up in ups)
