"""By whom a job's ranks are started: an MPI's mpirun, or agents of our own (`--launcher tcp`)."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

from horovod.common import listeners
from horovod.common.agent_messages import VARIABLE as AGENT_VARIABLE
from horovod.common.host_memory import VARIABLE as COMMITS_VARIABLE
from horovod.common.launched import MARK
from horovod.common.networks import Choice
from horovod.common.unbuilt import why_unbuilt
from horovod.runner import errors, forwarding, launchers
from horovod.runner.agents.places import PLACE_VARIABLES, WORKER
from horovod.runner.agents.plan import Plan
from horovod.runner.agents.warm import can_be_warm
from horovod.runner.elastic.discovery import RepeatedDiscovery
from horovod.runner.elastic.settings import (
    ElasticSettings,
    asks_for_elastic,
    elastic_settings,
    refuse_other_hosts,
)
from horovod.runner.errors import NoMpi
from horovod.runner.hosts import Host, is_local
from horovod.runner.job_hosts import JobHosts, Run, job_hosts_of, job_of
from horovod.runner.shell import Shell, shell_for
from horovod.runner.streams import say

__all__ = ["MPI", "TCP", "ByAgents", "ByMpi", "Way", "launcher_of", "way_of"]

MPI, TCP = "mpi", "tcp"
_SECRET, _INTERFACES, _START_TIMEOUT = "HOROVOD_SECRET", "HOROVOD_TCP_INTERFACES", "HOROVOD_START_TIMEOUT"
_ELASTIC, _ELASTIC_RESTART = "HOROVOD_ELASTIC", "HOROVOD_ELASTIC_RESTART"
_MANY = 1 << 20  # workers, each of them one start of a process, that an elastic job may have in all
_OF_MPIRUN = ("mpi_args", "binding_args")
_OF_MPI = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL")  # to its ranks


@dataclass(frozen=True)
class ByMpi:
    """`starter`: what to call it in sentences."""

    mpirun: str
    flavour: str
    launcher: str = MPI
    starter: str = "mpirun"
    most_ranks: int | None = None

    def hosts(self, values: Mapping[str, Any], environment: Mapping[str, str]) -> JobHosts:
        """Those that the options or the batch job name."""
        return job_hosts_of(values, environment)

    def inherited(self, environment: Mapping[str, str]) -> dict[str, str]:
        """What ranks get of our own environment."""
        return _without_agents(environment)

    def variables(
        self, values: Mapping[str, Any], hosts: JobHosts, choice: Choice, environment: Mapping[str, str]
    ) -> dict[str, str]:
        """What ranks are told besides: where they meet in torch's store (--ddp), which listens on all
        addresses, a secret that only they know, unless one is given or other hosts would not get it.
        """
        if not values.get("ddp") or environment.get(_SECRET):
            return {}
        made = {_SECRET: secrets.token_hex(32)}
        forwarding = hosts.forwarding(values, {**environment, **made}) if hosts.others() else None
        # A secret that only some ranks know ends the job.
        return {} if forwarding is not None and _SECRET in forwarding.withheld else made

    def session(self) -> AbstractContextManager[str]:
        """A folder for mpirun's own files."""
        return TemporaryDirectory(prefix="horovodrun-", ignore_cleanup_errors=True)

    def warning(self, hosts: JobHosts, values: Mapping[str, Any], environment: Mapping[str, str]) -> str:
        """What other hosts do not get of the environment, or everybody between could read."""
        if self.flavour in launchers.SENDING_EVERYTHING:
            return forwarding.warning_of_exposure(environment, self.flavour)
        return hosts.forwarding(values, environment).warning()

    def command(
        self,
        values: Mapping[str, Any],
        hosts: JobHosts,
        choice: Choice,
        command: Sequence[str],
        environment: Mapping[str, str],
        run: Run,
    ) -> list[str]:
        """What starts the ranks of a job. LaunchError where its options contradict each other."""
        job = job_of(values, hosts, choice, command, environment, replace(run, mpirun=self.mpirun))
        return launchers.command(job, self.flavour)

    def networks(self, environment: Mapping[str, str]) -> str:
        """Those that it may listen on."""
        return environment[listeners.DAEMONS_VARIABLE]


@dataclass(frozen=True)
class ByAgents:
    """As ByMpi, with a driver of ours in the place of mpirun."""

    elastic: ElasticSettings | None = None
    launcher: str = TCP
    starter: str = "the driver of the job"

    @property
    def most_ranks(self) -> int | None:
        """Numbers of workers end there; None: at the ranks of the beginning."""
        return None if self.elastic is None else _MANY

    def hosts(self, values: Mapping[str, Any], environment: Mapping[str, str]) -> JobHosts:
        """Ranks and hosts of the beginning. LaunchError where a script finds none."""
        if self.elastic is None:
            return job_hosts_of(values, environment)
        refuse_other_hosts(values, environment)
        found = RepeatedDiscovery(self.elastic.discovery(), say).find() or {}
        asked = not all(is_local(name) for name in found)
        shell = self._shell(values, environment) if asked else None
        listed = tuple(Host(name, slots) for name, slots in found.items())
        return JobHosts(self.elastic.np, listed, shell, may_lack=bool(self.elastic.script))

    @staticmethod
    def _shell(values: Mapping[str, Any], environment: Mapping[str, str]) -> Shell:
        return shell_for(environment, values.get("ssh_port"), values.get("ssh_identity_file"))

    def inherited(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Without what an MPI tells its ranks, too: it would count first."""
        return _without_mpi(_without_agents(environment))

    def variables(
        self, values: Mapping[str, Any], hosts: JobHosts, choice: Choice, environment: Mapping[str, str]
    ) -> dict[str, str]:
        """A secret that only this job's ranks know, and the networks that connect them, unless given; and how
        long they wait for each other.
        """
        told = {
            _SECRET: environment.get(_SECRET) or secrets.token_hex(32),
            _START_TIMEOUT: f"{values['start_timeout']:g}",
        }
        if self.elastic is not None:
            told[_ELASTIC] = "1"
            if self.elastic.restart:
                told[_ELASTIC_RESTART] = "1"
        if len(hosts.names()) > 1 and choice.networks and not environment.get(_INTERFACES):
            told[_INTERFACES] = ",".join(choice.networks)
        return told

    def session(self) -> AbstractContextManager[str]:
        """No folder: a job has no files."""
        return nullcontext("")

    def warning(self, hosts: JobHosts, values: Mapping[str, Any], environment: Mapping[str, str]) -> str:
        """All that is forwarded goes through the channel of ssh, or srun."""
        return ""

    def command(
        self,
        values: Mapping[str, Any],
        hosts: JobHosts,
        choice: Choice,
        command: Sequence[str],
        environment: Mapping[str, str],
        run: Run,
    ) -> list[str]:
        """LaunchError for options of mpirun."""
        for name in _OF_MPIRUN:
            if values.get(name):
                raise errors.option_of_mpirun(option=f"--{name.replace('_', '-')}")
        if self.elastic is not None:
            if self.elastic.restart and not can_be_warm(command):
                say(
                    "each rank that is started again loads torch anew: only of `python script.py` and "
                    "`python -m module` are ranks made from a process that has loaded it"
                )
            shell = self._shell(values, environment)
            listed = tuple((host.name, host.slots) for host in hosts.hosts)
            plan = Plan(listed, (), shell, run.nonce, self.elastic, hosts.failed)
            return plan.words(run.rank_command(command))
        here = [host.name for host in hosts.hosts if is_local(host.name)]
        named = [(here[0] if host.name in here else host.name, host.slots) for host in hosts.hosts]
        plan = Plan(tuple(named), tuple(here[:1]), hosts.shell, run.nonce)
        return plan.words(run.rank_command(command))

    def networks(self, environment: Mapping[str, str]) -> str:
        """It listens on none."""
        return ""


Way = ByMpi | ByAgents


def launcher_of(values: Mapping[str, Any]) -> str:
    """The launcher that the options name, MPI or TCP; "" for none. LaunchError where they name both."""
    by_flags = {MPI: values.get("use_mpi"), TCP: values.get("use_gloo")}
    named = {values.get("launcher", ""), *(name for name, is_asked in by_flags.items() if is_asked)} - {""}
    if len(named) > 1:
        raise errors.launchers_contradict()
    return "".join(named)


def way_of(values: Mapping[str, Any]) -> Way:
    """As the options say; else by mpirun, where this installation has one. LaunchError: it cannot be used."""
    named = launcher_of(values)
    if why := why_unbuilt():
        raise errors.unbuilt(why=why)
    if asks_for_elastic(values):
        if named == MPI:
            raise errors.mpi_not_elastic(option="--launcher mpi")
        return ByAgents(elastic_settings(values))
    if named == TCP:
        return ByAgents()
    try:
        mpirun = launchers.installed_mpirun()
    except NoMpi:
        if named == MPI:
            raise
        return ByAgents()
    return ByMpi(mpirun, launchers.installed_flavour(mpirun))


def _without_agents(environment: Mapping[str, str]) -> dict[str, str]:
    """Without what agents have told this process, if it is a rank: the new ones would take it for theirs. Nor
    HOROVOD_ELASTIC_RESTART, which has counted already: only ranks of torchrun read it.
    """
    of_agents = (AGENT_VARIABLE, COMMITS_VARIABLE, *PLACE_VARIABLES)
    names = {MARK, WORKER, _ELASTIC_RESTART, *(of_agents if AGENT_VARIABLE in environment else ())}
    return {name: text for name, text in environment.items() if name not in names}


def _without_mpi(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in environment.items() if not name.startswith(_OF_MPI)}
