"""The ranks of a job, as they report it, and the routes of their allreduces, with the core's reasons.

docs/architecture.md describes the routes. Loads the native core, which needs no MPI for this.
"""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from horovod import _native as native
from horovod.common.basics import basics
from horovod.runner import starting
from horovod.runner.errors import LaunchError
from horovod.topology import errors, job
from horovod.topology.facts import Host, Links, Ranks
from horovod.topology.probe import probe

SIZES = (1_000, 1_000_000, 100_000_000)  # bytes of float32
COMPRESSIONS = ("none", "bit8")


@dataclass(frozen=True)
class Route:
    """The choice for one size. Estimates, in milliseconds, are of this route and of the others."""

    size: int
    compression: str
    name: str
    is_encoded: bool  # whether the route uses the compression
    reason: str  # the core's
    estimates: Mapping[str, float] = field(default_factory=dict)

    @property
    def milliseconds(self) -> float:
        return self.estimates.get(self.name, 0.0)

    def next_best(self) -> tuple[str, float] | None:
        others = [(cost, name) for name, cost in self.estimates.items() if name != self.name]
        return (min(others)[1], min(others)[0]) if others else None


def routes(ranks: Ranks) -> tuple[Route, ...]:
    return tuple(_route(ranks, size, compression) for compression in COMPRESSIONS for size in SIZES)


def meaning(name: str) -> str:
    """A route, explained in one or two sentences."""
    return "There is one rank: nothing is sent." if name == "alone" else native.allreduce_patterns()[name]


def links_of(costs: native.LinkCosts, is_measured: bool) -> Links:
    figures = (costs.memory_latency, costs.memory_byte, costs.network_latency, costs.network_byte)
    return Links(*figures, is_measured)


def one_host(count: int) -> Ranks:
    """`count` ranks of one host that share its memory, with the core's assumptions of its links."""
    return Ranks((0,) * count, count > 1, False, links_of(native.LinkCosts(), is_measured=False))


def _route(ranks: Ranks, size: int, compression: str) -> Route:
    facts = _facts(ranks, size, compression)
    costs = native.LinkCosts()
    costs.memory_latency, costs.memory_byte = ranks.links.memory_latency, ranks.links.memory_byte
    costs.network_latency, costs.network_byte = ranks.links.network_latency, ranks.links.network_byte
    plan = native.plan_allreduce(facts, ranks.algorithm, ranks.is_deterministic, costs)
    if facts.is_encoded and not plan.is_encoded:
        facts.is_encoded, facts.wire_bytes = False, size
    # Without rules, so of all possible routes.
    estimates = {
        route: seconds * 1e3 for route, seconds in native.plan_allreduce(facts, costs=costs).estimates
    }
    return Route(size, compression, plan.route, plan.is_encoded, plan.reason, estimates)


def _facts(ranks: Ranks, size: int, compression: str) -> native.PlanFacts:
    """The facts that the core derives from a bucket of one tensor."""
    on_hosts = [[rank for rank, at in enumerate(ranks.hosts) if at == host] for host in set(ranks.hosts)]
    facts = native.PlanFacts()
    facts.ranks, facts.hosts = len(ranks.hosts), len(on_hosts)
    facts.most_on_a_host, facts.carriers = max(map(len, on_hosts)), native.carriers_of(on_hosts)
    facts.shares_memory, facts.has_host_windows = ranks.shares_memory, ranks.has_host_windows
    facts.bytes = facts.wire_bytes = size
    facts.sums_can_travel = compression == "none"
    if compression != "none":
        facts.is_encoded, facts.wire_bytes = True, native.get_codec(compression).encoded_bytes(size // 4)
    return facts


@dataclass(frozen=True)
class Told:
    """A rank's report. The first rank of each host describes the host."""

    host_name: str
    host: Host | None
    ranks: Ranks  # as this rank knows them: without their hosts


def tell() -> Told:
    """Join the job, so that its links are measured, and examine the host."""
    basics.init()
    try:
        world = basics.running().world
        facts = native.PlanFacts.of_world(world)
        settings = native.Settings.from_environment()
        links = links_of(world.links, is_measured=world.size > 1 and not settings.deterministic)
        ranks = Ranks(
            (), facts.shares_memory, facts.has_host_windows, links,
            settings.allreduce_algorithm, settings.deterministic,
        )  # fmt: skip
        return Told(socket.gethostname(), probe() if world.local_rank == 0 else None, ranks)
    finally:
        basics.shutdown()


def topology_of(options: Mapping[str, Any]) -> tuple[tuple[Host, ...], Ranks, str]:
    """Hosts, ranks, and a remark. If no ranks can be started: only this host, without measurement.

    RuntimeError if a rank or the job fails; LaunchError if the options name impossible hosts.
    """
    try:
        starting.way_of(options)
    except LaunchError as error:
        if options.get("hosts") is not None or options.get("hostfile") is not None:
            raise
        return (probe(),), one_host(options["np"]), f"Nothing is measured: {error}"
    return (*_joined(job.ask(options, tell)), "")


def _joined(told: Sequence[Told]) -> tuple[tuple[Host, ...], Ranks]:
    found = [each.host for each in told if each.host is not None]
    numbers = {host.name: number for number, host in enumerate(found)}
    if len(numbers) != len(found):
        twice = next(name for name, count in Counter(host.name for host in found).items() if count > 1)
        raise errors.same_host_names(host=twice)
    hosts = tuple(numbers[each.host_name] for each in told)
    return tuple(found), replace(told[0].ranks, hosts=hosts)
