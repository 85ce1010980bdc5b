"""The commands of docs/ddp.md's "horovodrun --ddp"; for several hosts: test/cluster/test_ddp_on_hosts.py."""

import re
import shlex
from pathlib import Path

import pytest
from launching import horovodrun
from page_blocks import blocks, commands

from horovod.runner import launchers
from horovod.runner.errors import LaunchError

try:
    launchers.installed_mpirun()
except LaunchError as error:
    pytest.skip(f"no mpirun: {error}", allow_module_level=True)

SECTION = "horovodrun --ddp"


@pytest.mark.parametrize("command", [line for line in commands("docs/ddp.md", SECTION) if "node" not in line])
def test_a_command_for_one_machine(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = blocks("docs/ddp.md", "python", SECTION)
    (tmp_path / "train.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    program, *words = shlex.split(command)
    assert program == "horovodrun"
    result = horovodrun(*words, limit=110)
    assert result.returncode == 0, result.stderr
    assert re.fullmatch(r"\[0\]<stdout>:loss [\d.]+ with 2 processes\n", result.stdout)
