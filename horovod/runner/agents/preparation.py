"""Checks before a job on several hosts: whether all can take part, and which networks connect them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from typing import Any

from horovod.common import networks, software, time_limits
from horovod.common.networks import Choice, Description, Network
from horovod.common.sentences import facts_of
from horovod.runner import errors
from horovod.runner.agents import host_facts
from horovod.runner.agents.driver import Driver
from horovod.runner.agents.reaching import refusal
from horovod.runner.shell import Shell


@dataclass(frozen=True)
class Prepared:
    choice: Choice
    warnings: tuple[str, ...] = ()
    descriptions: Mapping[str, Description] = field(default_factory=dict)  # empty for a job on one host
    missing: tuple[str, ...] = ()  # hosts that cannot take part, and without which the job begins
    has_fabric: bool = False  # every host has InfiniBand or the like


def build_refusal(facts: Mapping[str, Any]) -> str:
    """Return why a host with these facts cannot work with this one; "" if it can."""
    if "software" not in facts:  # from an agent of this host
        return ""
    try:
        there = {"it": _software_of(facts), "this host": software.checked(software.installed())}
    except ValueError as error:
        return str(errors.not_understood(**facts_of(error)))
    return software.refusal(there)


@dataclass(frozen=True)
class Preparation:
    driver: Driver
    shell: Shell | None
    seconds: float  # limit of each answer
    can_begin_without: Callable[[Collection[str]], bool] = lambda hosts: False

    def prepare(self, hosts: Sequence[str], here: Collection[str], wanted: Sequence[str]) -> Prepared:
        """Prepare a job on these hosts, of which `here` are this machine; `wanted`: networks that the user
        named.

        LaunchError names the hosts that cannot take part, if the job cannot begin without them.
        """
        facts, failures = self.driver.meet(hosts, self.seconds)
        own = host_facts.describe()
        records = {host: own if host in here else facts[host] for host in hosts if host in facts}
        descriptions = {host: self._described(record, failures, host) for host, record in records.items()}
        others = [host for host in hosts if host not in here]
        if failures and (set(failures) & set(here) or not self.can_begin_without(failures)):
            raise refusal(failures, len(others), self.shell)
        described = {h: each for h, each in descriptions.items() if each is not None and h not in failures}
        warnings = [self._without(failures), _checked_software(records, described)]
        launcher = _description(own)
        if wanted:
            choice = _as_wanted(list(described.values()), wanted)
        else:
            choice, warning = self._choose(described, here, launcher)
            warnings.append(warning)
        has_fabric = all(records[host].get("fabric") is True for host in described)
        return Prepared(choice, tuple(filter(None, warnings)), described, tuple(failures), has_fabric)

    def port(self, host: str | None, wanted: int) -> int:
        """Return a free port of a host (None: this one), 0 for none; see `host_facts.free_port`."""
        if host is None:
            return host_facts.free_port(wanted)
        answers, failures = self.driver.ask({host: {"about": "port", "wanted": wanted}}, self.seconds)
        port = answers.get(host)
        if not isinstance(port, int) or not 0 <= port < 65536:
            strange = str(errors.not_understood(why=f"no port: {port!r:.80}"))
            raise refusal(failures or {host: strange}, 1, self.shell)
        return port

    @staticmethod
    def _described(record: Any, failures: dict[str, str], host: str) -> Description | None:
        """Return a host's description; None if its facts are malformed, which is a failure."""
        try:
            _software_of(record)
            return _description(record)
        except ValueError as error:
            failures[host] = str(errors.not_understood(**facts_of(error)))
            return None

    def _without(self, failures: Mapping[str, str]) -> str:
        if not failures:
            return ""
        they = "and it is" if len(failures) == 1 else "and they are"
        cannot = refusal(failures, len(failures), self.shell)
        return f"{cannot}; the job begins without, {they} on the blacklist"

    def _choose(
        self, hosts: Mapping[str, Description], here: Collection[str], launcher: Description
    ) -> tuple[Choice, str]:
        own = list(hosts.values())
        if len(hosts) == 1:  # its ranks share memory
            return Choice(), ""
        asked = [launcher if host in here else description for host, description in hosts.items()]
        found = networks.shared(own) or networks.routed(asked, launcher)
        missed = self._unreached(hosts, here, found)
        usable = networks.fastest(own, networks.reachable(found, missed))
        warning = ""
        if not found:
            warning = (
                "the hosts share no network that could be chosen; if ranks do not find each other, name "
                "it with --network-interfaces"
            )
        elif not usable:
            warning = self._warning(missed)
        return networks.choice(own, usable or found), warning

    def _unreached(
        self, hosts: Mapping[str, Description], here: Collection[str], found: Sequence[Network]
    ) -> dict[str, list[IPv4Address]]:
        """Return host -> those addresses of the next host that it does not reach."""
        port = self._shell_port()
        targets = {
            host: [str(address) for address in addresses]
            for host, addresses in networks.ring(list(hosts), hosts, found).items()
        }
        asked = {host: to for host, to in targets.items() if host not in here}
        question = {"about": "reach", "port": port, "seconds": time_limits.REACH}
        answers, failures = self.driver.ask(
            {host: {**question, "targets": to} for host, to in asked.items()}, self.seconds
        )
        missed = {}
        for host, to in targets.items():
            answer = (
                host_facts.unreachable(port, time_limits.REACH, to) if host in here else answers.get(host)
            )
            try:
                missed[host] = _addresses_in(answer)
            except ValueError as error:
                failures.setdefault(host, str(errors.not_understood(**facts_of(error))))
        if failures:
            raise refusal(failures, len(asked), self.shell)
        return missed

    def _shell_port(self) -> int:
        return (self.shell.port if self.shell is not None else None) or 22

    def _warning(self, missed: Mapping[str, Sequence[IPv4Address]]) -> str:
        ways = [f"{host} to {', '.join(map(str, gaps))}" for host, gaps in missed.items() if gaps]
        port = self._shell_port()
        return (
            f"no answer on the way from {'; '.join(ways)} (tried port {port}): if ranks do not find each "
            "other, open the firewall between the hosts, or name another network with --network-interfaces"
        )


def _checked_software(records: Mapping[str, Any], hosts: Collection[str]) -> str:
    """Return warnings about the versions on the ranks' hosts. LaunchError if hosts cannot work together, or
    with this host.
    """
    facts = {host: _software_of(records[host]) for host in hosts}
    own = {"this host": software.checked(software.installed())}
    if different := software.refusal({**own, **facts}):
        raise errors.different_builds(differences=different, hosts=sorted(facts))
    return software.warning(facts)


def _as_wanted(hosts: Sequence[Description], wanted: Sequence[str]) -> Choice:
    """Return the user's networks unchanged; with interface names for NCCL, which does not take networks."""
    named = [word for word in wanted if "/" not in word]
    try:
        nets = [IPv4Network(word, strict=False) for word in wanted if "/" in word]
    except ValueError as error:
        raise errors.wrong_value(
            option="--network-interfaces", value=",".join(wanted), why=str(error)
        ) from None
    inside = {name for host in hosts for name, a in host.addresses if any(a.ip in net for net in nets)}
    return replace(Choice(tuple(wanted)), interfaces=tuple(dict.fromkeys([*named, *sorted(inside)])))


def _description(record: Any) -> Description:
    """Return a host's facts for `networks`. ValueError if they are malformed."""
    try:
        return Description(
            tuple((str(name), IPv4Interface(str(address))) for name, address, _ in record["addresses"]),
            _ipv4(record["at"]),
            _ipv4(record["from"]),
            {str(name): int(speed) for name, _, speed in record["addresses"]},
        )
    except (TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(f"no description of a host: {error}") from None


def _software_of(record: Any) -> software.Facts:
    """Return the versions in a host's facts. ValueError if they are malformed."""
    return software.checked(record.get("software") if isinstance(record, dict) else None)


def _addresses_in(answer: Any) -> list[IPv4Address]:
    """Return the addresses of an answer. ValueError for anything but a list of addresses."""
    if not isinstance(answer, list):
        raise ValueError(f"no list of addresses: {answer!r:.80}")
    return [IPv4Address(str(text)) for text in answer]


def _ipv4(text: str) -> IPv4Address | None:
    return IPv4Address(text) if text.count(".") == 3 and ":" not in text else None
