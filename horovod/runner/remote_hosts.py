"""Before a job on other hosts starts: whether all can take part, and which networks connect them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from typing import Any

from horovod.common import networks, software
from horovod.common.networks import Choice, Description, Network
from horovod.runner import errors, host_agent, host_cache, preflight
from horovod.runner.shell import Shell

HERE = ""  # what this machine is called among the hosts of a job


@dataclass(frozen=True)
class Prepared:
    """`cache_keys`: what to forget if the job does not start after all.

    `descriptions`: of the hosts, in their order; none where no host was asked. `missing`: hosts that cannot
    take part, and without which the job begins.
    """

    choice: Choice
    warnings: tuple[str, ...] = ()
    cache_keys: tuple[str, ...] = ()
    descriptions: tuple[Description, ...] = ()
    missing: tuple[str, ...] = ()


class Preparation:
    """Asks through `shell`, and remembers answers in `cache`; None asks every time.

    `can_begin_without`: whether a job can do without these hosts.
    """

    def __init__(
        self,
        shell: Shell,
        cache: host_cache.HostCache | None,
        can_begin_without: Callable[[Collection[str]], bool] = lambda hosts: False,
    ) -> None:
        self._shell = shell
        self._cache = cache
        self._can_begin_without = can_begin_without
        self._keys: list[str] = []

    def prepare(self, hosts: Sequence[str], wanted: Sequence[str] = ()) -> Prepared:
        """For these hosts (HERE for this machine); `wanted` are the networks that the user named, if any.

        LaunchError names the hosts that cannot take part, where the job cannot begin without them.
        """
        own = host_agent.describe()
        others, failures = self._describe([host for host in hosts if host != HERE], own["software"])
        records = {**others, HERE: own}
        warnings = [_without(failures, self._shell)]
        hosts = [host for host in hosts if host not in failures]
        warnings.append(_checked_software(records, hosts))
        everything = {host: preflight.description(record) for host, record in records.items()}
        here = {host: everything[host] for host in hosts}
        if wanted:
            choice = _as_wanted(list(here.values()), wanted)
        else:
            choice, warning = self._choose(here, everything[HERE])
            warnings.append(warning)
        said = tuple(filter(None, warnings))
        return Prepared(choice, said, tuple(self._keys), tuple(here.values()), tuple(failures))

    def _describe(self, hosts: Sequence[str], own: software.Facts) -> tuple[dict[str, Any], dict[str, str]]:
        """As `preflight.describe`. What was remembered counts where it has our versions; else something may
        be new there.
        """
        keys = {host: self._key("describe", host) for host in hosts}
        records = {host: self._remembered(key, preflight.understood) for host, key in keys.items()}
        records = {h: r for h, r in records.items() if r is not None and preflight.software_of(r) == own}
        asked = [host for host in hosts if host not in records]
        new, failures = preflight.describe(asked, self._shell)
        if failures and not self._can_begin_without(failures):
            raise preflight.refusal(failures, len(asked), self._shell)
        if self._cache and new:
            self._cache.put({keys[host]: record for host, record in new.items()})
        return {**records, **new}, failures

    def _choose(self, hosts: Mapping[str, Description], launcher: Description) -> tuple[Choice, str]:
        own = list(hosts.values())
        with_launcher = own if HERE in hosts else [*own, launcher]
        way_of_ssh = networks.routed(with_launcher, launcher)
        daemons = networks.shared(with_launcher)
        # One: with more of them the daemons of Open MPI 5.0 do not find each other, or crash. The first that
        # ssh went through is known to work.
        daemons = [*(n for n in daemons if n in way_of_ssh), *daemons][:1] or way_of_ssh
        if len(hosts) == 1:  # its ranks share memory
            return Choice(daemon_networks=tuple(map(str, daemons))), ""
        found = networks.shared(own) or networks.routed(own, launcher)
        missed = self._unreached(hosts, found)
        usable = networks.fastest(own, networks.reachable(found, missed))
        warning = ""
        if not found:
            warning = (
                "the hosts share no network that could be chosen; if ranks do not find each other, name "
            )
            warning += "it with --network-interfaces"
        elif not usable:
            warning = _warning(missed, self._shell)
        return networks.choice(own, usable or found, daemons), warning

    def _unreached(
        self, hosts: Mapping[str, Description], found: Sequence[Network]
    ) -> dict[str, list[IPv4Address]]:
        targets = networks.ring(list(hosts), hosts, found)
        key = self._key("reach", *(f"{host}>{','.join(map(str, to))}" for host, to in targets.items()))
        remembered = self._remembered(key, _unreached_in)
        if remembered is not None:
            return _unreached_in(remembered)
        missed = preflight.unreached(targets, self._shell)
        if self._cache and not any(missed.values()):
            self._cache.put({key: {host: list(map(str, missing)) for host, missing in missed.items()}})
        return missed

    def _remembered(self, key: str, reading: Callable[[Any], object]) -> Any:
        """What the cache has, if it can be read; else the hosts are asked again."""
        record = self._cache.find(key) if self._cache else None
        try:
            return record if record is not None and reading(record) is not None else None
        except ValueError:
            return None

    def _key(self, *about: str) -> str:
        key = " ".join(
            (f"v{host_agent.VERSION}", self._shell.identity(), sys.executable, host_agent.__file__, *about)
        )
        self._keys.append(key)
        return key


def _without(failures: Mapping[str, str], shell: Shell) -> str:
    """What is said where a job begins without these."""
    if not failures:
        return ""
    they = "and it is" if len(failures) == 1 else "and they are"
    cannot = preflight.refusal(failures, len(failures), shell)
    return f"{cannot}; the job begins without, {they} on the blacklist"


def _checked_software(records: Mapping[str, Any], hosts: Sequence[str]) -> str:
    """What is unwise about the versions that the hosts of ranks have. LaunchError where hosts cannot work
    together, or not with this one, from where they are started.
    """
    facts = {host or "this host": preflight.software_of(record) for host, record in records.items()}
    if different := software.refusal(facts):
        raise errors.different_builds(differences=different, hosts=sorted(facts))
    return software.warning({name: facts[name] for name in (host or "this host" for host in hosts)})


def _unreached_in(record: Any) -> dict[str, list[IPv4Address]]:
    """ValueError when it is something else than addresses by host."""
    if not isinstance(record, dict):
        raise ValueError(f"no addresses by host: {record!r:.80}")
    return {host: preflight.addresses_in(texts) for host, texts in record.items()}


def _as_wanted(hosts: Sequence[Description], wanted: Sequence[str]) -> Choice:
    """The user's words as they are; with the names of interfaces for NCCL, which knows no networks."""
    named = [word for word in wanted if "/" not in word]
    try:
        nets = [IPv4Network(word, strict=False) for word in wanted if "/" in word]
    except ValueError as error:
        raise errors.wrong_value(
            option="--network-interfaces", value=",".join(wanted), why=str(error)
        ) from None
    inside = {name for host in hosts for name, a in host.addresses if any(a.ip in net for net in nets)}
    return replace(
        Choice(tuple(wanted), tuple(wanted[:1])), interfaces=tuple(dict.fromkeys([*named, *sorted(inside)]))
    )


def _warning(missed: Mapping[str, Sequence[IPv4Address]], shell: Shell) -> str:
    ways = [
        f"{host or 'this host'} to {', '.join(map(str, missing))}"
        for host, missing in missed.items()
        if missing
    ]
    return (
        f"no answer on the way from {'; '.join(ways)} (tried port {shell.port or 22}): if ranks do not find "
        "each other, open the firewall between the hosts, or name another network with --network-interfaces"
    )
