"""Hosts and slots: from --hosts, --hostfile, a batch job, or this machine.

SCHEDULERS is the only table of batch systems, with the function that reads the allocation of a job of each.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NoReturn

from horovod.common import launched
from horovod.common.sentences import facts_of
from horovod.runner import errors

# Names become arguments of ssh: no character may have a meaning for a shell or ssh.
_NAME = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_-]{0,62}\.)*[A-Za-z0-9_][A-Za-z0-9_-]{0,62}\.?")
_LONGEST_NAME = 253  # the limit of the domain name system
_MOST_DIGITS = 9  # of a number of slots
_SHOWN = 80  # characters of the user's text that a message repeats
WRAPPER_BYTES = 4 << 20  # memory of a rank before it begins: its wrapper process
_NUMBER = "[0-9]{1,9}"  # longer numbers are mistakes
_REPEATED = re.compile(rf"({_NUMBER})(?:\(x({_NUMBER})\))?")
_HOSTFILE_LINE = re.compile(r"(\S+)(?:\s+slots\s*=\s*(\S+))?")


@dataclass(frozen=True)
class Host:
    name: str
    slots: int = 1


def from_text(text: str) -> list[Host]:
    """Parse host1:2,host2:4; a host without a number has one slot."""
    hosts = []
    for part in text.split(","):
        if len(part.split()) > 1:
            raise errors.hosts_by_blanks(hosts=shortened(text))
        name, colon, slots = part.strip().partition(":")
        hosts.append(checked_host(name, slots if colon else "1", f"--hosts {shortened(text)}"))
    return _without_repetition(hosts, f"--hosts {shortened(text)}")


def from_file(path: str) -> list[Host]:
    """Parse one `host slots=N` a line; a host without slots has one; # begins a comment."""
    try:
        with open(path) as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise errors.hostfile_unreadable(path=path, why=str(error)) from None
    hosts = []
    for number, words in numbered_lines(text):
        match = _HOSTFILE_LINE.fullmatch(words)
        if match is None:
            raise errors.hostfile_line(path=path, line=number, text=shortened(words))
        hosts.append(checked_host(match[1], match[2] or "1", f"the host file {path}, line {number}"))
    if not hosts:
        raise errors.hostfile_empty(path=path)
    return _without_repetition(hosts, f"the host file {path}")


def numbered_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield each line that has more than a comment (#), with its number."""
    for number, line in enumerate(text.splitlines(), 1):
        if words := line.partition("#")[0].strip():
            yield number, words


def checked_host(name: str, slots: str, where: str) -> Host:
    """Return a host, given texts found in `where`. LaunchError for an invalid name or number of slots."""
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        hint = "; slots stand behind a colon, as node1:2" if re.fullmatch(r"[\w.-]+=\d+", name) else ""
        raise errors.host_name(where=where, host=shortened(name), hint=hint, most=_LONGEST_NAME)
    if not slots.isascii() or not slots.isdigit() or len(slots) > _MOST_DIGITS or int(slots) == 0:
        most = 10**_MOST_DIGITS - 1
        raise errors.host_slots(where=where, host=name, slots=shortened(slots), most=most)
    return Host(name, int(slots))


def shortened(text: str) -> str:
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
    """Whether the name means this machine, which is reached without ssh."""
    here = socket.gethostname().lower()
    if name == "localhost" or name.lower() in (here, here.partition(".")[0]):
        return True
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return False  # a name that does not resolve is reported later, with the others
    return any(address.startswith("127.") or _is_own(address) for address in found)


def _is_own(address: str) -> bool:
    """Whether this machine could listen at the address."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def named(text: str | None, file: str | None) -> list[Host]:
    """Return the hosts of --hosts or --hostfile; an empty list if neither is given."""
    if text is not None and file is not None:
        raise errors.hosts_exclude(options=["--hosts", "--hostfile"])
    return from_text(text) if text is not None else from_file(file) if file is not None else []


def chosen(ranks: int, text: str | None, file: str | None, found: Sequence[Host] = ()) -> list[Host]:
    """Return the hosts that `ranks` ranks fill, in order: the last may have fewer ranks than slots.

    Without --hosts and --hostfile they are `found` (a batch job's), else this machine with a slot for every
    rank, regardless of its cores. Several names of this machine become one host; Open MPI would take them for
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
    """Return this machine with a slot for every rank. LaunchError if its memory cannot hold them."""
    import psutil  # here: `elastic.discovery` imports this module without it

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
    tasks: tuple[Host, ...]  # hosts with their numbers of tasks
    cores: tuple[Host, ...]  # hosts with their cores, if known
    ranks: int | None  # the requested number, if the scheduler gives it
    scheduler: str

    def hosts_for(self, ranks: int) -> list[Host]:
        """Return hosts with a slot per task, or per core if there are more ranks than tasks."""
        return list(self.tasks if ranks <= sum(h.slots for h in self.tasks) or not self.cores else self.cores)


def allocation(environment: Mapping[str, str]) -> Allocation | None:
    """Return this process' allocation, None outside of batch jobs. LaunchError: malformed variables."""
    return next((read(environment) for sign, read in SCHEDULERS.items() if sign in environment), None)


def _of_slurm(environment: Mapping[str, str]) -> Allocation:
    """The number of ranks is SLURM_NTASKS, else the sum of tasks if Slurm gives them."""
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
    """Refuse a job of LSF without named hosts: silently using only this host would surprise."""
    words = environment.get("LSB_MCPU_HOSTS", "").split()
    listed = ",".join(f"{name}:{slots}" for name, slots in zip(words[::2], words[1::2], strict=False))
    raise errors.lsf(hosts=listed or "host1:4,host2:4")


# A variable of the scheduler's jobs -> the function that reads their allocation. The first one set counts.
SCHEDULERS: dict[str, Callable[[Mapping[str, str]], Allocation]] = {
    "SLURM_JOB_ID": _of_slurm,
    "LSB_JOBID": _of_lsf,
}


def node_names(text: str) -> list[str]:
    """Return the host names of a Slurm list, each checked."""
    try:
        names = launched.node_names(text)
    except ValueError as error:
        raise errors.slurm_no_names(**facts_of(error, value=text)) from None
    return [checked_host(name, "1", f"SLURM_JOB_NODELIST {text}").name for name in names]


def _counts(environment: Mapping[str, str], variables: tuple[str, ...], hosts: int) -> list[int]:
    """Return a count for each host, from the first variable that is set: `2(x3),1`, or one number for all."""
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
