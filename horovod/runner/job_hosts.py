"""Where a job runs and over which networks, and the job that its options describe."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from horovod.common import interfaces, listeners
from horovod.common.networks import Choice, Description
from horovod.common.sentences import facts_of
from horovod.runner import daemon_agent, errors, forwarding, hosts, slurm
from horovod.runner import rank as wrapper
from horovod.runner.forwarding import Forwarding
from horovod.runner.host_cache import HostCache, default_folder
from horovod.runner.hosts import Host, is_local
from horovod.runner.launchers.job import Job
from horovod.runner.mistakes import USAGE
from horovod.runner.remote_hosts import HERE, Preparation, Prepared
from horovod.runner.shell import Shell, Srun, Ssh, shell_for

# Another way than ssh to start mpirun's daemons was asked for: then hosts need not answer ssh.
_OTHER_AGENTS = ("plm_ssh_agent", "plm_rsh_agent", "-bootstrap", "-launcher")
_SHARED_BY_RANK = 32 << 20  # bytes: Open MPI's 16 MiB, and ours


@dataclass(frozen=True)
class JobHosts:
    """Ranks, and the hosts in the order in which they are filled. `shell` is None where no host is asked.

    `may_lack`: where the others have slots for all ranks, the job begins without hosts that cannot take part;
    these are `failed` then.
    """

    ranks: int
    hosts: tuple[Host, ...]
    shell: Shell | None = None
    may_lack: bool = False
    failed: tuple[str, ...] = ()

    def names(self) -> list[str]:
        """The hosts, with HERE for all names of this machine."""
        return list(dict.fromkeys(HERE if is_local(host.name) else host.name for host in self.hosts))

    def others(self) -> list[str]:
        return [name for name in self.names() if name != HERE]

    def prepare(self, values: Mapping[str, Any]) -> Prepared:
        """Asks the other hosts, if there are any. LaunchError names those that cannot take part, and without
        which the job cannot begin.
        """
        wanted = tuple(values.get("network_interfaces", ()))
        if self.shell is None:
            names = tuple(word for word in wanted if "/" not in word)
            if values.get("launcher") == "tcp" and wanted and not self.others():
                _refuse_absent(wanted)  # ranks of several hosts do, and those of one never listen there
            return Prepared(Choice(wanted, wanted[:1], interfaces=names))
        cache = None if values.get("disable_cache") else HostCache(default_folder())
        return Preparation(self.shell, cache, self._can_begin_without).prepare(self.names(), wanted)

    def _can_begin_without(self, hosts: Collection[str]) -> bool:
        left = sum(host.slots for host in self.hosts if host.name not in hosts)
        return self.may_lack and left >= self.ranks

    def without(self, failed: Collection[str]) -> JobHosts:
        """The job where these cannot take part."""
        left = tuple(host for host in self.hosts if host.name not in failed)
        return replace(self, hosts=left, failed=tuple(failed))

    def forwarding(self, values: Mapping[str, Any], environment: Mapping[str, str]) -> Forwarding:
        """What of the environment mpirun itself sends to the other hosts, and what they do not get."""
        if isinstance(self.shell, Ssh) or not self.others():
            return Forwarding()
        arguments = _words(values, "mpi_args")
        if isinstance(self.shell, Srun):
            return forwarding.through_srun(environment, arguments)
        return forwarding.through_nothing(
            environment, arguments, "--mpi-args or the environment name another way than ssh to start ranks"
        )

    def daemon_agent(self) -> tuple[str, ...]:
        """What mpirun starts its daemons with, in the place of ssh. LaunchError where it could not."""
        words = (sys.executable, "-I", "-S", daemon_agent.__file__)
        if not isinstance(self.shell, Ssh):
            return ()
        if any(character.isspace() or character in ":'\"\\" for character in "".join(words)):
            raise errors.torn_path(paths=[sys.executable, daemon_agent.__file__])
        return words


def _refuse_absent(wanted: Sequence[str]) -> None:
    """LaunchError where this host has none of the interfaces and networks that were named."""
    here = Description(tuple((name, address) for name, address, _ in interfaces.addresses()))
    named = ",".join(wanted)
    try:
        if here.along(wanted):
            return
    except ValueError as error:
        raise errors.wrong_value(**facts_of(error, option="--network-interfaces", value=named)) from None
    has = ", ".join(f"{name} ({address.ip})" for name, address in here.addresses) or "none"
    raise errors.no_such_network(value=named, interfaces=has)


def job_hosts_of(values: Mapping[str, Any], environment: Mapping[str, str]) -> JobHosts:
    """Ranks and hosts from the options, or from the batch job that we are in."""
    named = values.get("hosts") is not None or values.get("hostfile") is not None
    allocation = None if named else slurm.allocation(environment)
    ranks = values.get("np") or (allocation and allocation.ranks)
    if not ranks:
        raise errors.no_ranks(usage=USAGE)
    found = allocation.hosts_for(ranks) if allocation else []
    chosen = tuple(hosts.chosen(ranks, values.get("hosts"), values.get("hostfile"), found))
    asked = not all(is_local(host.name) for host in chosen) and not _has_other_agent(values, environment)
    port, identity_file = values.get("ssh_port"), values.get("ssh_identity_file")
    return JobHosts(ranks, chosen, shell_for(environment, port, identity_file) if asked else None)


def _has_other_agent(values: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
    if values.get("launcher") == "tcp":  # which has agents of its own
        return False
    names = [*environment, *_words(values, "mpi_args")]
    return any(name.endswith(agent) for name in names for agent in _OTHER_AGENTS)


@dataclass(frozen=True)
class Run:
    """Of one run: mpirun, a folder for its session, the directory that ranks start in, and its nonce."""

    mpirun: str
    session_directory: str
    working_directory: str
    nonce: str

    def rank_command(self, command: Sequence[str]) -> tuple[str, ...]:
        """What each rank is started with. -I and -S: its wrapper needs the standard library only, and starts
        in 20 ms.
        """
        words = (sys.executable, "-I", "-S", wrapper.__file__, self.nonce, self.working_directory)
        return (*words, *command)


def job_of(
    values: Mapping[str, Any],
    job_hosts: JobHosts,
    choice: Choice,
    command: Sequence[str],
    environment: Mapping[str, str],
    run: Run,
) -> Job:
    """The job that the options describe. LaunchError where they contradict each other."""
    binding = _words(values, "binding_args")
    if binding and values.get("bind") == "auto":
        raise errors.binding_twice()
    named = "network_interfaces" in values
    return Job(
        mpirun=run.mpirun,
        ranks=job_hosts.ranks,
        hosts=job_hosts.hosts,
        rank_command=run.rank_command(command),
        variables=job_hosts.forwarding(values, environment).open,
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
        agent=job_hosts.daemon_agent(),
        memory=not job_hosts.others() and has_memory_for(job_hosts.ranks),
    )


def listening_environment(job_hosts: JobHosts, choice: Choice, verbose: bool = False) -> dict[str, str]:
    """On which networks ranks and mpirun's daemons may listen; all where none could be chosen.

    `verbose`: say where the system does not let them be kept to these.
    """
    among = (",".join(choice.networks), ",".join(choice.daemon_networks))
    ranks, daemons = (
        among[0] if len(job_hosts.names()) > 1 else listeners.LOOPBACK,
        among[1] if job_hosts.others() else listeners.LOOPBACK,
    )
    told = {listeners.RANKS_VARIABLE: ranks, listeners.DAEMONS_VARIABLE: daemons}
    return {**told, daemon_agent.VERBOSE_VARIABLE: "1"} if verbose else told


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
        option = f"--{name.replace('_', '-')}"
        raise errors.wrong_value(option=option, value=values[name], why=str(error)) from None


def has_memory_for(ranks: int, folder: str = "/dev/shm") -> bool:
    """Whether Open MPI's shared memory has room for the ranks of this host; TCP takes its place otherwise."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize >= ranks * _SHARED_BY_RANK


def has_fabric() -> bool:
    """Whether this machine has InfiniBand, Omni-Path, EFA (all: infiniband) or Slingshot (cxi)."""
    return any(
        any(Path(folder).iterdir())
        for folder in ("/sys/class/infiniband", "/sys/class/cxi")
        if Path(folder).is_dir()
    )
