"""Commands of pages that name other hosts, run on hosts as the metadata says (test/parallel/page_runs.py)."""

import re
import sys
from pathlib import Path

import pytest
import rig  # puts test/parallel on the path
from page_runs import Run, check, together, write
from rig import Cluster
from test_slurm import variables  # noqa: F401 -- a fixture

HOROVODRUN = f'horovodrun() {{ {sys.executable} -m horovod.runner "$@"; }}; export -f horovodrun; '


def as_here(text: str) -> str:
    """Return the text with the names of our hosts."""
    return re.sub(r"\bnode(\d)", rf"{rig.PREFIX}\1", text)


def typed(cluster: Cluster, folder: Path, runs: list[Run], **more: str) -> None:
    """Type commands in a folder that all hosts have, with the files of the page."""
    write(runs[0], folder)
    for file in folder.glob("hosts.txt"):
        file.write_text(as_here(file.read_text()))
    line = f"cd {folder}; {HOROVODRUN}{as_here(runs[0].line)}"
    done = cluster.run("t1", ["bash", "-c", line], limit=100, **more)
    for run in runs:
        check(run, done.returncode, done.stdout, done.stderr, folder)


@pytest.mark.parametrize("runs", together("hosts"))
def test_a_command_for_several_hosts(cluster: Cluster, tmp_path: Path, runs: list[Run]) -> None:
    typed(cluster, tmp_path, runs)


@pytest.mark.parametrize("runs", together("slurm"))
def test_a_script_of_a_slurm_job(
    cluster: Cluster,
    tmp_path: Path,
    runs: list[Run],
    variables: dict[str, str],  # noqa: F811
) -> None:
    more = {**variables, "SLURM_NTASKS": "2", "SLURM_TASKS_PER_NODE": "1(x2)"}
    more |= {name: "2" for name in ("SLURM_JOB_NUM_NODES", "SLURM_NNODES")}
    more |= {name: "t[1-2]" for name in ("SLURM_JOB_NODELIST", "SLURM_NODELIST")}
    typed(cluster, tmp_path, runs, **more)
