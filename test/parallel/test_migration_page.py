"""docs/migration.md: both trainings give the same loss, the check works, and refusals read as shown."""

import os
import re
import sys
from pathlib import Path

import pytest
import typed
from page_blocks import ROOT, blocks

sys.path.append(str(ROOT))  # last: a sanitized build may stand before this folder

from build_support.requirements import BuildError, check_requested_features

typed.needs_mpirun()
PAGE = "docs/migration.md"
(LAUNCH,), (TORCHRUN, HOROVODRUN) = (block.splitlines() for block in blocks(PAGE, "sh"))
REFUSED, LOSS = blocks(PAGE, "text")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with_ddp, with_hvd, check = blocks(PAGE, "python")
    (tmp_path / "ddp_train.py").write_text(with_ddp)
    (tmp_path / "hvd_train.py").write_text(f"{with_hvd}\n{check}")
    (tmp_path / "train.py").write_text(blocks("README.md", "python")[0])
    return tmp_path


def loss(printed: str) -> float:
    found = re.search(r"loss ([\d.]+) with 2 processes", printed)
    assert found, printed
    return float(found[1])


def test_the_same_training_before_and_after(folder: Path) -> None:
    before, after = typed.output_of(TORCHRUN, folder), typed.output_of(HOROVODRUN, folder)
    # Both add two numbers in float32 and halve them; what is left is another instruction order inside torch.
    assert loss(after) == pytest.approx(loss(before), rel=1e-4)
    assert loss(LOSS) == pytest.approx(loss(before), abs=2e-4)  # another torch may draw other numbers


def test_the_check_finds_ranks_that_differ(folder: Path) -> None:
    script = (folder / "hvd_train.py").read_text()
    broken = script.replace("torch.manual_seed(0)", "torch.manual_seed(rank)").replace(
        "hvd.broadcast_parameters", "# hvd.broadcast_parameters"
    )
    assert broken != script
    (folder / "hvd_train.py").write_text(broken)
    done = typed.run(HOROVODRUN, folder)
    assert done.returncode != 0
    assert "the ranks have different weights" in done.stderr


def test_horovods_own_launch_line(folder: Path) -> None:
    assert loss(typed.output_of(LAUNCH, folder)) < 5.0  # of README's script


COMMANDS = {  # what makes each line of the page appear
    "horovod.tensorflow ": "python -c 'import horovod.tensorflow'",
    "horovod.spark ": "python -c 'import horovod.spark'",
    "horovod.ray ": "python -c 'import horovod.ray'",
    "--jsrun ": "horovodrun -np 2 --jsrun true",
}


@pytest.mark.parametrize("line", REFUSED.splitlines())
def test_a_refusal_reads_as_shown(line: str, tmp_path: Path) -> None:
    (command,) = (command for begin, command in COMMANDS.items() if line.startswith(begin))
    done = typed.run(command, tmp_path)
    assert done.returncode != 0
    assert line in done.stderr


def test_what_the_build_says() -> None:
    row = r"^\| (`HOROVOD_.*?) \| (goes on.*?|is refused) \|$"
    rows = re.findall(row, (ROOT / PAGE).read_text(), re.MULTILINE)
    assert len(rows) == 4
    for settings, said in rows:
        for setting in re.findall(r"`(.*?)`", settings):
            name, _, value = setting.partition("=")
            environment = {name: value or os.fspath(ROOT)}
            if said == "is refused":
                with pytest.raises(BuildError, match=name):
                    check_requested_features(environment)
            else:
                check_requested_features(environment)
