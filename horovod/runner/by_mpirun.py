"""A job whose ranks an MPI's mpirun starts and watches over (`--launcher mpi`), as a child of ours.

mpirun's words and exit code are the job's. What its options cannot do is refused, and what it lets others see
is said before the start.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from horovod.common.options import OPTIONS
from horovod.runner import errors, forwarding, launchers, settings
from horovod.runner.agents.host_facts import has_fabric
from horovod.runner.agents.supervision import Ending
from horovod.runner.errors import flag_of
from horovod.runner.job_hosts import choice_here, job_hosts_of, nccl_environment
from horovod.runner.launchers import Job
from horovod.runner.processes import ENDING, end_with_parent, send
from horovod.runner.starting import ByMpirun, without_agents
from horovod.runner.streams import say

# Options that only horovodrun's own agents serve, and what they would do.
_REFUSED = {
    "ddp": "tells ranks where they meet",
    "master_addr": "says where the ranks of --ddp meet",
    "master_port": "says where the ranks of --ddp meet",
}
_REFUSED_VALUES = {"bind": ("auto", "binds ranks to cores")}
_WITH_DEFAULTS = ("start_timeout", "exit_timeout")
_SHARED_BY_RANK = 32 << 20  # bytes: Open MPI's 16 MiB, and ours


def run(
    way: ByMpirun, values: Mapping[str, Any], command: Sequence[str], environment: Mapping[str, str]
) -> Ending:
    """To the job's end. LaunchError for an option that mpirun has nothing for."""
    _refuse(values)
    if way.why:
        say(way.why)
    told = {**without_agents(environment), "PYTHONUNBUFFERED": "1", **settings.rank_environment(values)}
    told |= nccl_environment(values, choice_here(values.get("network_interfaces", ())), told)
    job = job_of(way, values, command, told)
    words = launchers.command(job, way.flavour)
    if any(min(host.slots, job.ranks) > len(os.sched_getaffinity(0)) for host in job.hosts):
        # Read by Open MPI only. A rank that waits must let another one work: 0.85 s instead of 12 s.
        told.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    for warning in forwarding.warnings_of_mpirun(
        told, way.flavour, words_of(values, "mpi_args"), job.is_remote()
    ):
        say(f"warning: {warning}")
    if values.get("verbose"):
        say(shlex.join(words))
    return Ending(_code_of(words, told))


def job_of(
    way: ByMpirun, values: Mapping[str, Any], command: Sequence[str], environment: Mapping[str, str]
) -> Job:
    """The job that the options describe. LaunchError where they contradict each other."""
    hosts = job_hosts_of(values, environment)
    binding, arguments = words_of(values, "binding_args"), words_of(values, "mpi_args")
    is_here = not hosts.others()
    return Job(
        mpirun=way.mpirun,
        ranks=hosts.ranks,
        hosts=hosts.hosts,
        rank_command=tuple(command),
        variables=() if is_here else forwarding.sent_by_mpirun(environment, arguments).open,
        network_interfaces=tuple(values.get("network_interfaces", ())),
        ssh_port=values.get("ssh_port"),
        ssh_identity_file=values.get("ssh_identity_file"),
        binding=tuple(binding) if binding else None,
        more_arguments=tuple(arguments),
        fabric=has_fabric(),
        tcp=values.get("tcp", False),
        memory=is_here and has_memory_for(hosts.ranks),
        output_folder=values.get("output_filename") or "",
        timestamps=values.get("prefix_timestamp", False),
    )


def _refuse(values: Mapping[str, Any]) -> None:
    for name, about in _REFUSED.items():
        if values.get(name):
            raise errors.option_of_agents(option=flag_of(name), about=about)
    for name, (value, about) in _REFUSED_VALUES.items():
        if values.get(name) == value:
            raise errors.option_of_agents(option=f"{flag_of(name)} {value}", about=about)
    for option in OPTIONS:
        if option.name in _WITH_DEFAULTS and str(values.get(option.name, option.default)) != option.default:
            raise errors.option_of_agents(option=flag_of(option.name), about="limits a time")


def _code_of(words: Sequence[str], environment: Mapping[str, str]) -> int:
    """mpirun's exit code, with its standard streams ours, and our signals passed on."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # before we know its number

    def pass_on(number: int, _: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            send(process.pid, number)

    before = {number: signal.signal(number, pass_on) for number in ENDING}
    try:
        process = subprocess.Popen(words, env=environment, preexec_fn=lambda: end_with_parent(signal.SIGTERM))
        for number in early:
            send(process.pid, number)
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code


def words_of(values: Mapping[str, Any], name: str) -> list[str]:
    try:
        return shlex.split(values.get(name) or "")
    except ValueError as error:
        raise errors.wrong_value(option=flag_of(name), value=values[name], why=str(error)) from None


def has_memory_for(ranks: int, folder: str = "/dev/shm") -> bool:
    """Whether Open MPI's shared memory has room for the ranks of this host; TCP takes its place otherwise."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize >= ranks * _SHARED_BY_RANK
