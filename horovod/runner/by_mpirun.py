"""A job whose ranks are started and watched by an MPI's mpirun (`--launcher mpi`), a child process.

The job has mpirun's messages and exit code. Options that mpirun lacks are refused. mpirun's traffic is
neither encrypted nor authenticated: warnings name what is exposed, and variables that may hold secrets are
not sent, except by an MPI that sends the whole environment.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import FrameType
from typing import Any

from horovod.common.options import OPTIONS
from horovod.runner import errors, launchers, settings
from horovod.runner.agents.host_facts import has_fabric
from horovod.runner.agents.supervision import Ending
from horovod.runner.errors import flag_of
from horovod.runner.job_hosts import choice_here, job_hosts_of, nccl_environment
from horovod.runner.launchers import Job
from horovod.runner.processes import end_with_parent, heeding, send
from horovod.runner.starting import ByMpirun, forwarded_variables, without_agents
from horovod.runner.streams import say

# Options that only horovodrun's agents serve -> their effect.
_REFUSED = {
    "ddp": "tells ranks where they meet",
    "master_addr": "says where the ranks of --ddp meet",
    "master_port": "says where the ranks of --ddp meet",
}
_REFUSED_VALUES = {"bind": ("auto", "binds ranks to cores")}
_WITH_DEFAULTS = ("start_timeout", "exit_timeout")
_SHARED_BY_RANK = 32 << 20  # bytes: 16 MiB of Open MPI, 16 of this package
# Settings of the ranks' programs, whose values are public unless a name matches _SECRET.
_OPEN = re.compile(
    r"PATH|PYTHON\w*|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|LANG|LANGUAGE|LC_\w+|TZ|VIRTUAL_ENV|CONDA_\w+"
    r"|(HOROVOD|NCCL|GLOO|UCX|UCC|FI|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|TORCHELASTIC|PYTORCH|CUDA|CUBLAS|CUDNN)_\w+"
    r"|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|ROLE_\w+|GROUP_WORLD_SIZE"
)
_SECRET = re.compile(r"TOKEN|SECRET|KEY|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
# Their mpirun sends its whole environment to ranks by its own messages.
SENDING_EVERYTHING = ("MPICH", "Intel MPI")
# Variables that every host sets itself, and that no job misses.
_OF_A_LOGIN = re.compile(
    r"HOME|USER|LOGNAME|SHELL|MAIL|TERM\w*|COLORTERM|LS_COLORS|LESS\w*|PAGER|EDITOR|VISUAL|DISPLAY|PS\d"
    r"|HIST\w+|XDG_\w+|DBUS_\w+|DEBIAN_FRONTEND"
)


@dataclass(frozen=True)
class Forwarding:
    """Names of variables."""

    open: tuple[str, ...] = ()  # mpirun sends them itself: others on the network can read their values
    withheld: tuple[str, ...] = ()  # other hosts do not get them


def run(
    way: ByMpirun, values: Mapping[str, Any], command: Sequence[str], environment: Mapping[str, str]
) -> Ending:
    """Run the job to its end. LaunchError for an option that mpirun does not have."""
    _refuse(values)
    if way.why:
        say(way.why)
    told = {**without_agents(environment), "PYTHONUNBUFFERED": "1", **settings.rank_environment(values)}
    told |= nccl_environment(values, choice_here(values.get("network_interfaces", ())), told)
    job = job_of(way, values, command, told)
    words = launchers.command(job, way.flavour)
    if any(min(host.slots, job.ranks) > len(os.sched_getaffinity(0)) for host in job.hosts):
        # Read by Open MPI only. A waiting rank must yield its core to another rank: 0.85 s instead of 12 s.
        told.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
    for warning in warnings_of_mpirun(told, way.flavour, words_of(values, "mpi_args"), job.is_remote()):
        say(f"warning: {warning}")
    if values.get("verbose"):
        say(shlex.join(words))
    return Ending(_code_of(words, told))


def job_of(
    way: ByMpirun, values: Mapping[str, Any], command: Sequence[str], environment: Mapping[str, str]
) -> Job:
    """Return the job that the options describe. LaunchError if they contradict each other."""
    hosts = job_hosts_of(values, environment)
    binding, arguments = words_of(values, "binding_args"), words_of(values, "mpi_args")
    is_here = not hosts.others()
    return Job(
        mpirun=way.mpirun,
        ranks=hosts.ranks,
        hosts=hosts.hosts,
        rank_command=tuple(command),
        variables=() if is_here else sent_by_mpirun(environment, arguments).open,
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
    """Run mpirun with this process' standard streams; return its exit code. Signals are passed on to it."""
    process: subprocess.Popen[bytes] | None = None
    early: list[int] = []  # signals received before the child's process id is known

    def pass_on(number: int, _: FrameType | None) -> None:
        if process is None:
            early.append(number)
        else:
            send(process.pid, number)

    with heeding(pass_on):
        process = subprocess.Popen(words, env=environment, preexec_fn=lambda: end_with_parent(signal.SIGTERM))
        for number in early:
            send(process.pid, number)
        code = process.wait()
    return 128 - code if code < 0 else code


def words_of(values: Mapping[str, Any], name: str) -> list[str]:
    try:
        return shlex.split(values.get(name) or "")
    except ValueError as error:
        raise errors.wrong_value(option=flag_of(name), value=values[name], why=str(error)) from None


def has_memory_for(ranks: int, folder: str = "/dev/shm") -> bool:
    """Whether Open MPI's shared memory has room for this host's ranks; if not, ranks use TCP."""
    try:
        space = os.statvfs(folder)
    except OSError:
        return False
    return space.f_bavail * space.f_frsize >= ranks * _SHARED_BY_RANK


def sent_by_mpirun(environment: Iterable[str], arguments: Sequence[str]) -> Forwarding:
    """Return the variables that mpirun sends to other hosts. `arguments`: the user's arguments for mpirun."""
    asked = {name.partition("=")[0] for flag, name in pairwise(arguments) if flag == "-x"}
    names = [name for name in forwarded_variables(environment) if name not in asked]
    sent = tuple(name for name in names if _OPEN.fullmatch(name) and not _SECRET.search(name))
    withheld = tuple(n for n in names if n not in sent and not _OF_A_LOGIN.fullmatch(n))
    return Forwarding(sent, withheld)


def warnings_of_mpirun(
    environment: Iterable[str], mpi: str, arguments: Sequence[str], is_remote: bool
) -> list[str]:
    """Warnings about what mpirun exposes, and cannot hide or limit, if ranks are on other hosts."""
    if not is_remote:
        return []
    said = [f"mpirun of {mpi}, its daemons and its ranks listen on all networks of their hosts"]
    if mpi in SENDING_EVERYTHING:
        return [*said, *filter(None, [_exposure(environment, mpi)])]
    if withheld := sent_by_mpirun(environment, arguments).withheld:
        flags = " ".join(f"-x {name}" for name in withheld)
        said.append(
            f"ranks on other hosts do not get {', '.join(withheld)}, as what mpirun sends can be read on the "
            f'network. Where that does not matter, name those that the ranks need: --mpi-args="{flags}"'
        )
    return said


def _exposure(environment: Iterable[str], mpi: str) -> str:
    """The warning for an MPI whose mpirun sends its whole environment; "" if no name suggests a secret."""
    secrets = [name for name in forwarded_variables(environment) if _SECRET.search(name)]
    if not secrets:
        return ""
    return (
        f"mpirun of {mpi} sends the whole environment to the other hosts, and it can be read on the network, "
        f"{', '.join(secrets)} too; unset what the ranks do not need, or use Open MPI, or leave out "
        "--launcher mpi: agents are given it through ssh"
    )
