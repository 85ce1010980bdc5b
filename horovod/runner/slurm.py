"""The hosts of a batch job: Slurm's allocation, read from its SLURM_ variables; LSF's is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from horovod.common import nodelists
from horovod.common.sentences import facts_of
from horovod.runner import errors
from horovod.runner.hosts import Host, checked_host

_NUMBER = "[0-9]{1,9}"  # of more digits, none is meant
_REPEATED = re.compile(rf"({_NUMBER})(?:\(x({_NUMBER})\))?")


@dataclass(frozen=True)
class Allocation:
    """`tasks`: hosts with the tasks that were asked for; `cores`: with their cores, if Slurm says them."""

    tasks: tuple[Host, ...]
    cores: tuple[Host, ...]
    ranks: int | None  # SLURM_NTASKS, else the sum of tasks when Slurm says them

    def hosts_for(self, ranks: int) -> list[Host]:
        """With a slot for each task, or for each core when there are more ranks than tasks."""
        return list(self.tasks if ranks <= sum(h.slots for h in self.tasks) or not self.cores else self.cores)


def allocation(environment: Mapping[str, str]) -> Allocation | None:
    """The allocation we run in; None outside of Slurm. LaunchError when it cannot be understood."""
    if "SLURM_JOB_ID" not in environment:
        refuse_lsf(environment)
        return None
    text = environment.get("SLURM_JOB_NODELIST", environment.get("SLURM_NODELIST", ""))
    if not text:
        raise errors.slurm_no_hosts(job=environment["SLURM_JOB_ID"])
    names = node_names(text)
    tasks = _counts(environment, ("SLURM_TASKS_PER_NODE", "SLURM_NTASKS_PER_NODE"), len(names))
    cores = _counts(environment, ("SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE"), len(names))
    slots = tasks or cores or [1] * len(names)
    wanted = environment.get("SLURM_NTASKS", environment.get("SLURM_NPROCS", ""))
    if wanted and not (re.fullmatch(_NUMBER, wanted) and int(wanted)):
        raise errors.slurm_no_number(value=wanted)
    return Allocation(
        tuple(map(Host, names, slots)),
        tuple(map(Host, names, cores)),
        int(wanted) if wanted else sum(tasks) or None,
    )


def refuse_lsf(environment: Mapping[str, str]) -> None:
    """In a job of LSF the hosts must be named: silently taking this one alone would surprise."""
    if "LSB_JOBID" in environment:
        words = environment.get("LSB_MCPU_HOSTS", "").split()
        listed = ",".join(f"{name}:{slots}" for name, slots in zip(words[::2], words[1::2], strict=False))
        raise errors.lsf(hosts=listed or "host1:4,host2:4")


def node_names(text: str) -> list[str]:
    """The hosts of a list of Slurm's, each checked."""
    try:
        names = nodelists.node_names(text)
    except ValueError as error:
        raise errors.slurm_no_names(**facts_of(error, value=text)) from None
    return [checked_host(name, "1", f"SLURM_JOB_NODELIST {text}").name for name in names]


def _counts(environment: Mapping[str, str], variables: tuple[str, ...], hosts: int) -> list[int]:
    """A count for each host from the first of the variables that is set: `2(x3),1` or one number for all."""
    for variable in variables:
        text = environment.get(variable, "")
        if not text:
            continue
        matches = [_REPEATED.fullmatch(piece.strip()) for piece in text.split(",")]
        counts = [int(m[1]) for m in matches if m for _ in range(min(int(m[2] or 1), hosts + 1))]
        if len(counts) == 1:
            counts *= hosts
        if None in matches or len(counts) != hosts or 0 in counts:
            raise errors.slurm_no_counts(variable=variable, value=text, count=hosts)
        return counts
    return []
