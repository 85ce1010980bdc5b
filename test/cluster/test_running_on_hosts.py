"""The commands of docs/running.md that name other hosts; the others: test/parallel/test_running_page.py."""

import re
import sys
from pathlib import Path

import pytest
import rig  # puts test/parallel on the path
import running_page
from rig import Cluster
from test_slurm import variables  # noqa: F401 -- a fixture

HOROVODRUN = f'horovodrun() {{ {sys.executable} -m horovod.runner "$@"; }}; export -f horovodrun; '


def as_here(text: str) -> str:
    """With the names of our hosts."""
    return re.sub(r"\bnode(\d)", rf"{rig.PREFIX}\1", text)


def run(cluster: Cluster, folder: Path, command: str, **more: str) -> str:
    """In a folder that all hosts have, with the files of the page."""
    running_page.write_files(folder)
    (folder / "hosts.txt").write_text(as_here((folder / "hosts.txt").read_text()))
    result = cluster.run(
        "t1", ["bash", "-c", f"cd {folder}; {HOROVODRUN}{as_here(command)}"], limit=100, **more
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("command", running_page.commands(on_other_hosts=True))
def test_a_command_for_several_hosts(cluster: Cluster, tmp_path: Path, command: str) -> None:
    shown = run(cluster, tmp_path, command)
    if command.endswith("hostname"):
        assert sorted(shown.splitlines()) == ["[0]<stdout>:t1", "[1]<stdout>:t2"]
    else:
        assert re.search(r"^\[0\]<stdout>:loss [\d.]+ with 4 processes$", shown, re.MULTILINE)


def test_the_slurm_script(
    cluster: Cluster,
    tmp_path: Path,
    variables: dict[str, str],  # noqa: F811
) -> None:
    more = {**variables, "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)"}
    more |= {name: "2" for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")}
    more |= {name: "t[1-2]" for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST")}
    assert "with 2 processes" in run(cluster, tmp_path, "bash job.sh", **more)
