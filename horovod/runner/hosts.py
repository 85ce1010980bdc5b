"""Hosts and slots: from --hosts, --hostfile, a batch job, or this machine.

SCHEDULERS is the one table of batch systems, with how the allocation of a job of each is read.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from horovod.common import nodelists
from horovod.common.sentences import facts_of
from horovod.runner import errors

# Names become arguments of ssh: nothing that a shell or ssh would read as something else.
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_-]{0,62}\.)*[A-Za-z0-9_][A-Za-z0-9_-]{0,62}\.?")
_LONGEST_NAME = 253  # of the domain name system
_MOST_DIGITS = 9  # of a number of slots
_SHOWN = 80  # characters of what was given that a message repeats
WRAPPER_BYTES = 4 << 20  # memory that a rank takes before it begins: the process that starts it
_NUMBER = "[0-9]{1,9}"  # of more digits, none is meant
_REPEATED = re.compile(rf"({_NUMBER})(?:\(x({_NUMBER})\))?")
_HOSTFILE_LINE = re.compile(r"(\S+)(?:\s+slots\s*=\s*(\S+))?")


@dataclass(frozen=True)
class Host:
    name: str
    slots: int = 1


def from_text(text: str) -> list[Host]:
    """host1:2,host2:4; a host without a number has one slot."""
    hosts = []
    for part in text.split(","):
        if len(part.split()) > 1:
            raise errors.hosts_by_blanks(hosts=shortened(text))
        name, colon, slots = part.strip().partition(":")
        hosts.append(checked_host(name, slots if colon else "1", f"--hosts {shortened(text)}"))
    return _without_repetition(hosts, f"--hosts {shortened(text)}")


def from_file(path: str) -> list[Host]:
    """One `host slots=N` a line; a host without slots has one; # begins a comment."""
    try:
        with open(path) as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.hostfile_unreadable(path=path, why=str(error)) from None
    hosts = []
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        match = _HOSTFILE_LINE.fullmatch(words)
        if match is None:
            raise errors.hostfile_line(path=path, line=number, text=shortened(words))
        hosts.append(checked_host(match[1], match[2] or "1", f"the host file {path}, line {number}"))
    if not hosts:
        raise errors.hostfile_empty(path=path)
    return _without_repetition(hosts, f"the host file {path}")


def checked_host(name: str, slots: str, where: str) -> Host:
    """A host from texts that `where` holds. LaunchError when the name is none, or slots is no number."""
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        hint = "; slots stand behind a colon, as node1:2" if re.fullmatch(r"[\w.-]+=\d+", name) else ""
        raise errors.host_name(where=where, host=shortened(name), hint=hint, most=_LONGEST_NAME)
    if not slots.isascii() or not slots.isdigit() or len(slots) > _MOST_DIGITS or int(slots) == 0:
        most = 10**_MOST_DIGITS - 1
        raise errors.host_slots(where=where, host=name, slots=shortened(slots), most=most)
    return Host(name, int(slots))


def shortened(text: str) -> str:
    """The given text, as a message repeats it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"


def _without_repetition(hosts: list[Host], where: str) -> list[Host]:
    seen: set[str] = set()
    for host in hosts:
        if host.name in seen:
            raise errors.host_twice(where=where, host=host.name)
        seen.add(host.name)
    return hosts


@cache
def is_local(name: str) -> bool:
    """Whether the name means this machine: no ssh is needed then, and mpirun uses none."""
    here = socket.gethostname().lower()
    if name == "localhost" or name.lower() in (here, here.partition(".")[0]):
        return True
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False  # who cannot be found is named later, with the others
    return any(address.startswith("127.") or _is_own(address) for address in found)


def _is_own(address: str) -> bool:
    """Whether something here could listen at it. A driver asks too, which has the standard library only."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def named(text: str | None, file: str | None) -> list[Host]:
    """Those of --hosts or --hostfile; none without."""
    if text is not None and file is not None:
        raise errors.hosts_exclude(options=["--hosts", "--hostfile"])
    return from_text(text) if text is not None else from_file(file) if file is not None else []


def chosen(ranks: int, text: str | None, file: str | None, found: Sequence[Host] = ()) -> list[Host]:
    """The hosts that `ranks` ranks fill, in order: the last may have fewer ranks than slots.

    Without --hosts and --hostfile it is `found` (a batch job's), else this machine, with a slot for every
    rank, however many cores it has. Several names of this machine are one host: Open MPI would take them for
    two.
    """
    hosts = named(text, file) or list(found)
    if not hosts:
        return [_this_machine(ranks)]
    slots = sum(host.slots for host in hosts)
    if ranks > slots:
        how = f", as {hosts[0].name}:{ranks}" if len(hosts) == 1 else ""
        raise errors.too_few_slots(np=ranks, slots=slots, hosts=_listed(hosts), how=how)
    filled = _filled(hosts, ranks)
    return [_this_machine(ranks)] if all(is_local(host.name) for host in filled) else filled


def _this_machine(ranks: int) -> Host:
    """With a slot for every rank. LaunchError when so many cannot even begin: they would try for long."""
    import psutil  # not where a driver imports this module

    memory = psutil.virtual_memory().total
    if ranks * WRAPPER_BYTES > memory:
        raise errors.too_many_here(np=ranks, memory=memory >> 20, each=WRAPPER_BYTES >> 20)
    return Host("localhost", ranks)


def _filled(hosts: Sequence[Host], ranks: int) -> list[Host]:
    filled = []
    for host in hosts:
        if ranks == 0:
            break
        here = min(host.slots, ranks)
        filled.append(Host(host.name, here))
        ranks -= here
    return filled


def _listed(hosts: Sequence[Host]) -> str:
    return shortened(",".join(f"{host.name}:{host.slots}" for host in hosts))


@dataclass(frozen=True)
class Allocation:
    """`tasks`: hosts with the tasks that were asked for; `cores`: with their cores, if the scheduler says."""

    tasks: tuple[Host, ...]
    cores: tuple[Host, ...]
    ranks: int | None  # that were asked for, if the scheduler says
    scheduler: str

    def hosts_for(self, ranks: int) -> list[Host]:
        """With a slot for each task, or for each core when there are more ranks than tasks."""
        return list(self.tasks if ranks <= sum(h.slots for h in self.tasks) or not self.cores else self.cores)


def allocation(environment: Mapping[str, str]) -> Allocation | None:
    """The allocation we run in; None outside of any. LaunchError when it cannot be understood."""
    return next((read(environment) for sign, read in SCHEDULERS.items() if sign in environment), None)


def _of_slurm(environment: Mapping[str, str]) -> Allocation:
    """With the number of SLURM_NTASKS, else the sum of tasks if Slurm says them."""
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
        "Slurm",
    )


def _of_lsf(environment: Mapping[str, str]) -> NoReturn:
    """The hosts must be named: silently taking this one alone would surprise."""
    words = environment.get("LSB_MCPU_HOSTS", "").split()
    listed = ",".join(f"{name}:{slots}" for name, slots in zip(words[::2], words[1::2], strict=False))
    raise errors.lsf(hosts=listed or "host1:4,host2:4")


# By a variable that their jobs have: what reads the allocation. The first that is set counts.
SCHEDULERS: dict[str, Callable[[Mapping[str, str]], Allocation]] = {
    "SLURM_JOB_ID": _of_slurm,
    "LSB_JOBID": _of_lsf,
}


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
