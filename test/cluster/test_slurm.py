"""A Slurm allocation: hosts from its variables, and agents by srun (a script here, which uses ssh)."""

import os
import sys
from pathlib import Path

import launching
import pytest
from rig import Cluster

# Like srun: starts the words on every node of --nodelist, with the environment and the node's number.
SRUN = """#!/bin/bash
echo "$*" >> "$SRUN_LOG"
[ "$1" = --version ] && { echo slurm 23.11.4; exit; }
while [ "${1#-}" != "$1" ]; do case $1 in --nodelist=*) nodes=${1#*=};; esac; shift; done
number=0; exec 3<&0
[ "$SLURM_EXPORT_ENV" = NONE ] || exported=$(mktemp "$SRUN_LOG.XXXXXX")
[ -n "$exported" ] && export -p | grep -v TMPDIR= > "$exported"
words=$(for name in ${!SLURM_@}; do printf "%q " "$name=${!name}"; done; printf "%q " "$@")
for node in ${nodes//,/ }; do
  ssh "$node" "${exported:+. $exported; }env PATH=$PATH SLURM_NODEID=$number $words" <&3 &
  number=$((number + 1))
done
wait
"""
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOBID": "7",
    "SLURM_JOB_NODELIST": "t[1-3]",
    "SLURM_NODELIST": "t[1-3]",
    "SLURM_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_NUM_NODES": "3",
    "SLURM_NNODES": "3",
}
ON_EACH = ["t1", "t1", "t2", "t3"]


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "bin").mkdir()
    srun = tmp_path / "bin" / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    path = f"{srun.parent}{os.pathsep}{launching.environment('slurm')['PATH']}"
    return {**JOB, "SRUN_LOG": str(tmp_path / "log"), "PATH": path}


def test_the_hosts_of_the_allocation(cluster: Cluster, variables: dict[str, str], tmp_path: Path) -> None:
    result = cluster.horovodrun("hostname", **variables)
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [
        f"[{rank}]<stdout>:{host}" for rank, host in enumerate(ON_EACH)
    ]
    asked = (tmp_path / "log").read_text()
    assert asked.count("agents/agent.py") == 2  # by srun once on each of the other hosts
    fewer = cluster.horovodrun("-np", "1", "-H", "t3:1", "hostname", **variables)
    assert fewer.stdout == "[0]<stdout>:t3\n", fewer.stderr


@pytest.mark.parametrize("exported", ["", "NONE"])
def test_ranks_have_the_environment_whatever_srun_exports(
    cluster: Cluster, variables: dict[str, str], exported: str
) -> None:
    """Agents receive it through srun's standard input."""
    words = ["-np", "2", "sh", "-c", "echo $HF_TOKEN $HOROVOD_SIMD"]
    more = {**variables, "SLURM_TASKS_PER_NODE": "1(x3)", "HF_TOKEN": "mine", "HOROVOD_SIMD": "baseline"}
    result = cluster.horovodrun(*words, **more, **({"SLURM_EXPORT_ENV": exported} if exported else {}))
    assert sorted(result.stdout.splitlines()) == [f"[{rank}]<stdout>:mine baseline" for rank in range(2)]
    assert result.stderr == ""


def test_a_function_in_the_allocation(cluster: Cluster, variables: dict[str, str]) -> None:
    code = "import horovod, os; print(horovod.run(lambda: os.uname().nodename, num_proc=4))"
    result = cluster.run("t1", [sys.executable, "-c", code], **variables)
    assert result.stdout == f"{ON_EACH}\n", result.stderr
    assert cluster.files_left() == []
