"""Hosts of a Slurm job, from its variables."""

import os
from pathlib import Path

import pytest
from refusals import refused

from horovod.runner import errors, hosts
from horovod.runner.errors import LaunchError
from horovod.runner.hosts import Host
from horovod.runner.job_hosts import job_hosts_of
from horovod.runner.shell import Srun

JOB = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-3]"}


@pytest.mark.parametrize(
    "text, names",
    [
        ("login", ["login"]),
        ("a,b.example.org", ["a", "b.example.org"]),
        ("node[001-003,7],gpu[1-2]x", ["node001", "node002", "node003", "node7", "gpu1x", "gpu2x"]),
        ("r[1-2]n[09-10]", ["r1n09", "r1n10", "r2n09", "r2n10"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ],
)
def test_node_lists(text: str, names: list[str]) -> None:
    assert hosts.node_names(text) == names


@pytest.mark.parametrize(
    "text", ["n[1-", "n[a-b]", "n[1-2", "n[]", "n[1-999999999]", "-oProxyCommand=x", "a;b"]
)
def test_wrong_node_lists_are_refused(text: str) -> None:
    with pytest.raises(LaunchError) as error:
        hosts.node_names(text)
    assert text in (error.value.facts.get("value"), error.value.facts.get("where", "").partition(" ")[2])


def slots(ranks: int, **more: str) -> list[int]:
    found = hosts.allocation({**JOB, **more})
    assert found is not None
    return [host.slots for host in found.hosts_for(ranks)]


def test_slots() -> None:
    assert slots(1, SLURM_TASKS_PER_NODE="2(x2),1") == [2, 2, 1]
    assert slots(1, SLURM_NTASKS_PER_NODE="4") == [4, 4, 4]
    assert slots(1, SLURM_JOB_CPUS_PER_NODE="16,8(x2)") == [16, 8, 8]
    assert slots(1, SLURM_CPUS_ON_NODE="16") == [16, 16, 16]
    assert slots(1) == [1, 1, 1]
    # salloc -N 3 counts one task per node; more ranks use the cores
    one_each = {"SLURM_TASKS_PER_NODE": "1(x3)", "SLURM_JOB_CPUS_PER_NODE": "4(x3)"}
    assert slots(2, **one_each) == slots(3, **one_each) == [1, 1, 1]
    assert slots(4, **one_each) == [4, 4, 4]


@pytest.mark.parametrize("text", ["2(x2)", "2(x4)", "1,2", "0(x3)", "two", "2(x2),x"])
def test_wrong_counts_are_refused(text: str) -> None:
    with refused(errors.slurm_no_counts, variable="SLURM_TASKS_PER_NODE", value=text, count=3):
        slots(1, SLURM_TASKS_PER_NODE=text)


def test_the_number_of_ranks() -> None:
    def ranks(**more: str) -> int | None:
        found = hosts.allocation({**JOB, **more})
        assert found is not None
        return found.ranks

    assert ranks(SLURM_NTASKS="5") == 5
    assert ranks(SLURM_NPROCS="6") == 6
    assert ranks(SLURM_TASKS_PER_NODE="2(x2),1") == 5
    assert ranks() is None
    with refused(errors.slurm_no_number, value="x"):
        ranks(SLURM_NTASKS="x")


def test_jobs_of_no_known_kind() -> None:
    assert hosts.allocation({}) is None
    with refused(errors.slurm_no_hosts, job="7"):
        hosts.allocation({"SLURM_JOB_ID": "7"})
    with refused(errors.lsf, hosts="a:2,b:4"):
        hosts.allocation({"LSB_JOBID": "1", "LSB_MCPU_HOSTS": "a 2 b 4"})


def test_where_a_job_runs(tmp_path: Path) -> None:
    environment = {**JOB, "SLURM_NTASKS": "5", "SLURM_TASKS_PER_NODE": "2(x2),1", "PATH": os.environ["PATH"]}
    found = job_hosts_of({}, environment)
    assert (found.ranks, found.hosts) == (5, (Host("n1", 2), Host("n2", 2), Host("n3", 1)))
    assert job_hosts_of({"np": 3}, environment).hosts == (Host("n1", 2), Host("n2", 1))
    # the user's option wins
    assert job_hosts_of({"np": 1, "hosts": "localhost:1"}, environment).hosts == (Host("localhost", 1),)
    with refused(errors.too_few_slots, np=6, slots=5):
        job_hosts_of({"np": 6}, environment)
    # an allocation's hosts are reached by srun if it exists
    srun = tmp_path / "srun"
    srun.write_text("#!/bin/sh\n")
    srun.chmod(0o755)
    with_srun = job_hosts_of({}, {**environment, "PATH": str(tmp_path)})
    assert isinstance(with_srun.shell, Srun)
    command = with_srun.shell.command("n2", ["python", "-c", "x"])
    assert command[0] == "srun" and "--nodelist=n2" in command and command[-3:] == ["python", "-c", "x"]
