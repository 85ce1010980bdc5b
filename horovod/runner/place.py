"""Where a job runs and over which networks, and the job that its options describe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from horovod.runner import command_line, hosts, slurm
from horovod.runner import rank as wrapper
from horovod.runner.errors import LaunchError
from horovod.runner.host_cache import HostCache, default_folder
from horovod.runner.hosts import Host, is_local
from horovod.runner.launchers.job import Job, forwarded_variables
from horovod.runner.networks import Choice
from horovod.runner.remote_hosts import HERE, Preparation, Prepared
from horovod.runner.shell import Shell, shell_for

# Another way than ssh to start mpirun's daemons was asked for: then hosts need not answer ssh.
_OTHER_AGENTS = ("plm_ssh_agent", "plm_rsh_agent", "-bootstrap", "-launcher")


@dataclass(frozen=True)
class Place:
    """Ranks, and the hosts in the order in which they are filled. `shell` is None where no host is asked."""

    ranks: int
    hosts: tuple[Host, ...]
    shell: Shell | None = None

    def names(self) -> list[str]:
        """The hosts, with HERE for all names of this machine."""
        return list(dict.fromkeys(HERE if is_local(host.name) else host.name for host in self.hosts))

    def others(self) -> list[str]:
        return [name for name in self.names() if name != HERE]

    def prepare(self, values: Mapping[str, Any]) -> Prepared:
        """Asks the other hosts, if there are any. LaunchError names those that cannot take part."""
        wanted = tuple(values.get("network_interfaces", ()))
        if self.shell is None:
            names = tuple(word for word in wanted if "/" not in word)
            return Prepared(Choice(wanted, wanted[:1], interfaces=names))
        cache = None if values.get("disable_cache") else HostCache(default_folder())
        return Preparation(self.shell, cache).prepare(self.names(), wanted)


def place_of(values: Mapping[str, Any], environment: Mapping[str, str]) -> Place:
    """Ranks and hosts from the options, or from the batch job that we are in."""
    named = values.get("hosts") is not None or values.get("hostfile") is not None
    allocation = None if named else slurm.allocation(environment)
    ranks = values.get("np") or (allocation and allocation.ranks)
    if not ranks:
        raise LaunchError(f"say how many ranks to start: {command_line.USAGE}")
    found = allocation.hosts_for(ranks) if allocation else []
    chosen = tuple(hosts.chosen(ranks, values.get("hosts"), values.get("hostfile"), found))
    asked = not all(is_local(host.name) for host in chosen) and not _has_other_agent(values, environment)
    port, identity_file = values.get("ssh_port"), values.get("ssh_identity_file")
    return Place(ranks, chosen, shell_for(environment, port, identity_file) if asked else None)


def _has_other_agent(values: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    names = [*environment, *_words(values, "mpi_args")]
    return any(name.endswith(agent) for name in names for agent in _OTHER_AGENTS)


@dataclass(frozen=True)
class Run:
    """Of one run: mpirun, a folder for its session, the directory that ranks start in, and its nonce."""

    mpirun: str
    session_directory: str
    working_directory: str
    nonce: str


def job_of(
    values: Mapping[str, Any],
    place: Place,
    choice: Choice,
    command: Sequence[str],
    environment: Mapping[str, str],
    run: Run,
) -> Job:
    """The job that the options describe. LaunchError where they contradict each other."""
    # -I and -S: the wrapper needs the standard library only, and starts in 20 ms.
    start_rank = (sys.executable, "-I", "-S", wrapper.__file__, run.nonce, run.working_directory)
    binding = _words(values, "binding_args")
    named = "network_interfaces" in values
    return Job(
        mpirun=run.mpirun,
        ranks=place.ranks,
        hosts=place.hosts,
        rank_command=(*start_rank, *command),
        variables=forwarded_variables(list(environment)),
        session_directory=run.session_directory,
        network_interfaces=choice.networks,
        daemon_interfaces=choice.daemon_networks,
        one_interface="" if named else choice.interface,
        ssh_port=values.get("ssh_port"),
        ssh_identity_file=values.get("ssh_identity_file"),
        binding=tuple(binding) if binding else None,
        more_arguments=tuple(_words(values, "mpi_args")),
        fabric=has_fabric(),
        tcp=values.get("tcp", False),
    )


def nccl_environment(
    values: Mapping[str, Any], choice: Choice, environment: Mapping[str, str]
) -> dict[str, str]:
    """What NCCL is told about networks, unless the user told it."""
    found = {"NCCL_SOCKET_IFNAME": ",".join(choice.interfaces)} if choice.interfaces else {}
    if values.get("tcp"):
        found["NCCL_IB_DISABLE"] = "1"
    return {name: text for name, text in found.items() if name not in environment}


def _words(values: Mapping[str, Any], name: str) -> list[str]:
    try:
        return shlex.split(values.get(name, ""))
    except ValueError as error:
        raise LaunchError(f"--{name.replace('_', '-')} {values[name]}: {error}") from None


def has_fabric() -> bool:
    """Whether this machine has InfiniBand, Omni-Path, EFA (all: infiniband) or Slingshot (cxi)."""
    return any(
        any(Path(folder).iterdir())
        for folder in ("/sys/class/infiniband", "/sys/class/cxi")
        if Path(folder).is_dir()
    )
