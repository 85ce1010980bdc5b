"""Each rank's report for `horovodrun --topology`, and the hosts and ranks that follow from all reports."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod import _native as native
from horovod.common.basics import basics
from horovod.runner import starting
from horovod.runner.errors import LaunchError
from horovod.topology import errors, job
from horovod.topology.facts import Host, Links, Ranks
from horovod.topology.probe import probe
from horovod.topology.routes import links_of, one_host


@dataclass(frozen=True)
class Told:
    """A rank's report. The first rank of each host describes the host."""

    host_name: str
    host: Host | None
    shares_memory: bool  # all ranks, if there are several
    has_host_windows: bool
    links: Links
    algorithm: str
    is_deterministic: bool


def tell() -> Told:
    """Join the job, so that its links are measured, and examine the host."""
    basics.init()
    try:
        world = basics.running().world
        facts = native.PlanFacts.of_world(world)
        settings = native.Settings.from_environment()
        return Told(
            socket.gethostname(),
            probe() if world.local_rank == 0 else None,
            facts.shares_memory,
            facts.has_host_windows,
            links_of(world.links, is_measured=world.size > 1 and not settings.deterministic),
            settings.allreduce_algorithm,
            settings.deterministic,
        )
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
    first = told[0]
    return tuple(found), Ranks(
        hosts,
        first.shares_memory,
        first.has_host_windows,
        first.links,
        first.algorithm,
        first.is_deterministic,
    )
