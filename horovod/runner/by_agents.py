"""A job whose ranks are started and watched by agents: the ranks' environment and the run."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from horovod.common.agent_messages import Place
from horovod.common.networks import Choice
from horovod.common.sentences import facts_of
from horovod.runner import errors, processes, rendezvous, settings
from horovod.runner.agents import frames, wrapper
from horovod.runner.agents.decisions import Decisions, FixedJob
from horovod.runner.agents.driver import Driver, JobInput, Run
from horovod.runner.agents.job import Job, MoreVariables, Told
from horovod.runner.agents.output import RankOutput, Writer
from horovod.runner.agents.places import BIND, PAYLOAD, TERMINALS
from horovod.runner.agents.preparation import Preparation, Prepared, build_refusal
from horovod.runner.agents.reaching import Ways
from horovod.runner.agents.supervision import Ending, Supervision
from horovod.runner.agents.warm import can_be_warm
from horovod.runner.closing import Closing, asked
from horovod.runner.elastic.discovery import Discovering, hosts_of_script
from horovod.runner.elastic.settings import ElasticSettings, refuse_other_hosts
from horovod.runner.errors import DiscoveryError, flag_of
from horovod.runner.hosts import Host, is_local
from horovod.runner.job_hosts import JobHosts, choice_here, job_hosts_of, nccl_environment, refuse_absent
from horovod.runner.payload import fresh_name
from horovod.runner.shell import shell_for
from horovod.runner.starting import forwarded_variables, without_agents
from horovod.runner.streams import say

_SECRET, _INTERFACES, _START_TIMEOUT = "HOROVOD_SECRET", "HOROVOD_TCP_INTERFACES", "HOROVOD_START_TIMEOUT"
_ELASTIC, _ELASTIC_RESTART = "HOROVOD_ELASTIC", "HOROVOD_ELASTIC_RESTART"
_MANY = 1 << 20  # most workers (starts of processes) that an elastic job may have in all
_OF_MPIRUN = ("mpi_args", "binding_args")
_OF_MPI = ("OMPI_COMM_WORLD_", "OMPI_UNIVERSE_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL")  # of MPI's ranks


def run(
    elastic: ElasticSettings | None,
    values: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, str],
    payload: bytes = b"",
) -> Ending:
    """Run the job to its end. Ranks find `payload`, if any, by its name in a variable.

    LaunchError if nothing can start; Interrupted by a signal before any rank has started.
    """
    for name in _OF_MPIRUN:
        if values.get(name):
            raise errors.option_of_mpirun(option=flag_of(name))
    hosts = _hosts(elastic, values, environment)
    if elastic is not None and elastic.restart and not can_be_warm(command):
        say(
            "each rank that is started again loads torch anew: only of `python script.py` and "
            "`python -m module` are ranks made from a process that has loaded it"
        )
    output = _output(hosts.ranks, values)
    with _descendants_ended(), Driver(Ways(hosts.shell)) as driver:
        preparation = Preparation(driver, hosts.shell, values["start_timeout"], hosts.can_begin_without)
        prepared = _prepared(preparation, hosts, values)
        _tell_of(prepared)
        hosts = hosts.without(prepared.missing)
        told = rank_environment(elastic, values, hosts, prepared.choice, environment)
        of_ranks, warning = _meeting(values, hosts, prepared, preparation, told)
        closing = Closing("" if warning else asked(values, told), values.get("quiet", False))
        if payload:
            told[PAYLOAD] = fresh_name()
        if values.get("verbose"):
            names = ", ".join(f"{name}:{slots}" for name, slots in hosts.slots())
            say(f"agents start {hosts.ranks} ranks on {names}, each of which runs {command[0]}")
        supervision = Supervision(
            _MANY if elastic is not None else hosts.ranks,
            values["start_timeout"],
            values["exit_timeout"],
            is_elastic=elastic is not None,
            verbose=values.get("verbose", False),
            closing=closing,
        )
        # -I and -S: a wrapper needs only the standard library, and starts in 20 ms.
        words = [sys.executable, "-I", "-S", wrapper.__file__, os.getcwd(), *command]
        sent, writer = _told(words, told, payload, _more_variables(of_ranks)), Writer(output)
        decisions, is_elastic = _decisions(elastic, hosts), elastic is not None
        job = Job(decisions, sent, driver.connections, supervision, writer, is_elastic)
        discovering = None
        if elastic is not None and elastic.script:
            discovering = Discovering(elastic.script, elastic.slots_per_host)
        code = Run(driver, job, supervision, writer, JobInput(0), discovering).exit_code()
    ending = supervision.ending(code)
    for line in closing.lines() if ending.code == 0 else []:
        say(line)
    return ending


def _tell_of(prepared: Prepared) -> None:
    for warning in prepared.warnings:
        say(f"warning: {warning}")
    if prepared.has_fabric:
        say("all hosts have InfiniBand or the like: for tensors in CPU memory, --launcher mpi may be faster")


@contextmanager
def _descendants_ended() -> Iterator[None]:
    """At exit, end all descendants, including those of a killed agent or ssh."""
    processes.adopt_orphans()
    try:
        yield
    finally:
        processes.end_descendants(patience=2.0)


def _output(ranks: int, values: Mapping[str, Any]) -> RankOutput:
    """Output to the standard streams without Python's locks: the thread may be left blocked in a write."""
    stdout, stderr = (open(number, "wb", buffering=0, closefd=False) for number in (1, 2))  # noqa: SIM115
    folder, has_times = values.get("output_filename"), values.get("prefix_timestamp", False)
    return RankOutput(ranks, stdout, stderr, folder, has_times)


def _meeting(
    values: Mapping[str, Any],
    hosts: JobHosts,
    prepared: Prepared,
    preparation: Preparation,
    told: dict[str, str],
) -> tuple[Sequence[Mapping[str, str]], str]:
    """With --ddp, add to `told` the address at which ranks meet; return each rank's further variables, and a
    warning.
    """
    if not values.get("ddp"):
        return (), ""
    meeting = rendezvous.of(values, hosts, prepared, preparation.port)
    of_ranks = meeting.variables_of_ranks(told)
    told |= meeting.variables(secrets.token_hex(6))
    if warning := rendezvous.compression_warning(told):
        say(f"warning: {warning}")
    return of_ranks, warning


def _hosts(
    elastic: ElasticSettings | None, values: Mapping[str, Any], environment: Mapping[str, str]
) -> JobHosts:
    """Return the hosts at the start; in an elastic job each name is a host. LaunchError for none."""
    if elastic is None:
        return job_hosts_of(values, environment).with_one_name_here()
    refuse_other_hosts(values, environment)
    try:
        found = dict(elastic.fixed_hosts) or hosts_of_script(elastic.script, elastic.slots_per_host)
    except DiscoveryError as error:
        raise errors.no_hosts_found(**facts_of(error)) from error
    listed = tuple(Host(name, slots) for name, slots in found.items())
    others = [name for name in found if not is_local(name)]
    shell = shell_for(values, environment) if others or elastic.script else None
    return JobHosts(elastic.limits.np, listed, shell, may_lack=bool(elastic.script))


def _prepared(preparation: Preparation, hosts: JobHosts, values: Mapping[str, Any]) -> Prepared:
    """Query other hosts, if there are any. LaunchError names the hosts that cannot take part."""
    wanted = tuple(values.get("network_interfaces", ()))
    if hosts.others():
        return preparation.prepare(hosts.names(), hosts.here(), wanted)
    if wanted:  # other hosts would refuse such a name
        refuse_absent(wanted)
    return Prepared(choice_here(wanted))


def rank_environment(
    elastic: ElasticSettings | None,
    values: Mapping[str, Any],
    hosts: JobHosts,
    choice: Choice,
    environment: Mapping[str, str],
) -> dict[str, str]:
    """Return all ranks' variables.

    These include a secret and the networks that connect the ranks, unless given, and how long ranks wait for
    each other.
    """
    told = {
        **inherited(environment),
        "PYTHONUNBUFFERED": "1",
        **settings.rank_environment(values),
        BIND: values.get("bind", "none"),
        **nccl_environment(values, choice, environment),
        _SECRET: environment.get(_SECRET) or secrets.token_hex(32),
        _START_TIMEOUT: f"{values['start_timeout']:g}",
    }
    if elastic is not None:
        told[_ELASTIC] = "1"
        if elastic.restart:
            told[_ELASTIC_RESTART] = "1"
    if hosts.others() and choice.networks and not environment.get(_INTERFACES):
        told[_INTERFACES] = ",".join(choice.networks)
    return told


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return this process' environment for ranks, without an MPI's variables, which would take precedence."""
    own = without_agents(environment)
    return {name: text for name, text in own.items() if not name.startswith(_OF_MPI)}


def _told(command: Sequence[str], variables: Mapping[str, str], payload: bytes, more: MoreVariables) -> Told:
    """Return environment and payload as agents receive them. Other hosts get forwarded variables only."""
    encoded = {os.fsencode(name): os.fsencode(text) for name, text in variables.items()}
    sent = {os.fsencode(name) for name in forwarded_variables(variables)}
    elsewhere = {name: text for name, text in encoded.items() if name in sent}
    here, there = map(frames.packed_environment, (encoded, elsewhere))
    return Told(command, here, there, payload, build_refusal, more)


def _decisions(elastic: ElasticSettings | None, hosts: JobHosts) -> Decisions:
    """Return this job's decisions. Other kinds of jobs are not loaded, as that would delay the start."""
    if elastic is None:
        return FixedJob(hosts.slots())
    from horovod.runner.agents.restart_job import RestartJob
    from horovod.runner.elastic.membership import MembershipMachine

    kind = RestartJob if elastic.restart else MembershipMachine
    return kind(elastic.limits, dict(hosts.slots()), time.monotonic, hosts.failed)


def _more_variables(of_ranks: Sequence[Mapping[str, str]]) -> MoreVariables:
    """Return a function that gives a worker's variables apart from its place: the variables of its rank, and
    for rank 0, which of its streams are terminals.
    """
    terminals = _terminals()

    def more(host: str, place: Place) -> Mapping[str, str]:
        own = dict(of_ranks[place.rank]) if of_ranks else {}
        if place.rank == 0 and terminals and is_local(host):
            own[TERMINALS] = terminals
        return own

    return more


def _terminals() -> str:
    """Return the terminals as `wrapper` reads them; "" if neither output stream is a terminal."""
    kinds = "".join(kind for kind, descriptor in (("O", 1), ("E", 2)) if os.isatty(descriptor))
    if not kinds:
        return ""
    size = os.terminal_size((80, 24))
    for descriptor in (1, 2):
        with suppress(OSError):
            size = os.get_terminal_size(descriptor)
            break
    return f"{kinds} {size.lines} {size.columns}"
