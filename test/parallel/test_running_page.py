"""The commands of docs/running.md for one machine; the others: test/cluster/test_running_on_hosts.py."""

import re
import subprocess
from pathlib import Path

import launching
import pytest
import running_page

from horovod.runner import launchers
from horovod.runner.errors import LaunchError

try:
    MPIRUN = Path(launchers.installed_mpirun())
except LaunchError as error:
    pytest.skip(f"no mpirun: {error}", allow_module_level=True)
pytest.importorskip("horovod._native", reason="the native core is not built")


def run(command: str, folder: Path) -> str:
    running_page.write_files(folder)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}  # as the page says
    root |= {"PRTE_ALLOW_RUN_AS_ROOT": "1", "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    environment = launching.environment(
        "page", PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe", **root
    )
    environment["PATH"] = f"{MPIRUN.parent}:{environment['PATH']}"
    horovodrun = folder / "bin" / "horovodrun"  # of this copy of the package, wherever another is installed
    horovodrun.parent.mkdir()
    horovodrun.write_text('#!/bin/sh\nexec python -m horovod.runner "$@"\n')
    horovodrun.chmod(0o755)
    environment["PATH"] = f"{horovodrun.parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("command", running_page.commands(on_other_hosts=False))
def test_a_command_for_one_machine(command: str, tmp_path: Path) -> None:
    shown = run(command, tmp_path)
    if "train.py" in command:
        assert re.search(r"loss [\d.]+ with 2 processes", shown)
        assert ("[0]<stdout>:loss" in shown) == command.startswith("horovodrun")
    if "echo" in command:
        assert shown == "[0]<stdout>:3\n"
    if "logs" in command:
        assert "with 2 processes" in (tmp_path / "logs" / "rank.0" / "stdout").read_text()


def test_the_function(tmp_path: Path) -> None:
    lines = run("python function.py", tmp_path).splitlines()
    assert [line.split(" with ")[0] for line in lines] == ["rank 0 ended", "rank 1 ended"]
