"""A job's hosts and ranks, from the options or from this process' batch job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from horovod.common import networks
from horovod.common.networks import Choice, Description
from horovod.common.sentences import facts_of
from horovod.runner import errors, hosts
from horovod.runner.hosts import Host, is_local
from horovod.runner.mistakes import USAGE
from horovod.runner.shell import Shell, shell_for


@dataclass(frozen=True)
class JobHosts:
    """Ranks, and the hosts in the order in which they are filled."""

    ranks: int
    hosts: tuple[Host, ...]
    shell: Shell | None = None  # None if all hosts are this machine
    may_lack: bool = False  # the job may begin without `failed`, if the others have slots for all ranks
    failed: tuple[str, ...] = ()  # hosts that cannot take part

    def names(self) -> list[str]:
        return list(dict.fromkeys(host.name for host in self.hosts))

    def here(self) -> list[str]:
        return [name for name in self.names() if is_local(name)]

    def others(self) -> list[str]:
        return [name for name in self.names() if not is_local(name)]

    def slots(self) -> tuple[tuple[str, int], ...]:
        return tuple((host.name, host.slots) for host in self.hosts)

    def can_begin_without(self, failed: Collection[str]) -> bool:
        left = sum(host.slots for host in self.hosts if host.name not in failed)
        return self.may_lack and left >= self.ranks

    def without(self, failed: Collection[str]) -> JobHosts:
        left = tuple(host for host in self.hosts if host.name not in failed)
        return replace(self, hosts=left, failed=tuple(failed))

    def with_one_name_here(self) -> JobHosts:
        """Return the job with all names of this machine as one host."""
        here = self.here()
        named = (replace(host, name=here[0]) if host.name in here else host for host in self.hosts)
        return replace(self, hosts=tuple(named))


def job_hosts_of(values: Mapping[str, Any], environment: Mapping[str, str]) -> JobHosts:
    """Return ranks and hosts from the options, or from this process' batch job."""
    named = values.get("hosts") is not None or values.get("hostfile") is not None
    allocation = None if named else hosts.allocation(environment)
    ranks = values.get("np") or (allocation and allocation.ranks)
    if not ranks:
        raise errors.no_ranks(usage=USAGE)
    found = allocation.hosts_for(ranks) if allocation else []
    chosen = tuple(hosts.chosen(ranks, values.get("hosts"), values.get("hostfile"), found))
    has_others = not all(is_local(host.name) for host in chosen)
    return JobHosts(ranks, chosen, shell_for(values, environment) if has_others else None)


def choice_here(wanted: Sequence[str]) -> Choice:
    """Return the user's choice, for a job on this machine, or one whose hosts are not queried."""
    return Choice(tuple(wanted), interfaces=tuple(word for word in wanted if "/" not in word))


def refuse_absent(wanted: Sequence[str]) -> None:
    """LaunchError if this host has none of the named interfaces and networks."""
    here = Description(tuple((name, address) for name, address, _ in networks.addresses()))
    named = ",".join(wanted)
    try:
        if here.along(wanted):
            return
    except ValueError as error:
        raise errors.wrong_value(**facts_of(error, option="--network-interfaces", value=named)) from None
    has = ", ".join(f"{name} ({address.ip})" for name, address in here.addresses) or "none"
    raise errors.no_such_network(value=named, interfaces=has)


def nccl_environment(
    values: Mapping[str, Any], choice: Choice, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return NCCL's variables about networks, except those that the user set."""
    found = {"NCCL_SOCKET_IFNAME": ",".join(choice.interfaces)} if choice.interfaces else {}
    if values.get("tcp"):
        found["NCCL_IB_DISABLE"] = "1"
    return {name: text for name, text in found.items() if name not in environment}
