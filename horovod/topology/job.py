"""Asks ranks on the hosts that horovodrun's arguments name: the hosts, the ranks, and their links."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from horovod import _native as native
from horovod.common.basics import basics
from horovod.common.options import OPTIONS
from horovod.runner import command_line, hosts, run_function, settings, starting
from horovod.runner.errors import LaunchError
from horovod.runner.streams import say
from horovod.topology import errors, words
from horovod.topology.facts import Host, Ranks
from horovod.topology.probe import probe
from horovod.topology.routes import links_of, one_host

T = TypeVar("T")

# Options about output, or about the later life of a job: these ranks print nothing, and end at once.
_WITHOUT_MEANING = (
    *("output_filename", "prefix_timestamp", "timeline_filename", "compression"),
    *("tune_launch", "tune_launch_steps", "min_np", "max_np", "host_discovery_script", "slots_per_host"),
    *("elastic_timeout", "reset_limit", "blacklist_cooldown_range", "blacklist", "max_worker_failures"),
)


def options_of(arguments: Sequence[str]) -> dict[str, Any]:
    """The options by name, with a config file's. LaunchError for options that make no sense here."""
    given, command = command_line.parse(arguments)
    if command:
        raise errors.takes_no_command(command=" ".join(command))
    for option in OPTIONS:
        if option.name in _WITHOUT_MEANING and option.name in given:
            raise errors.no_meaning(option=next(flag for flag in option.flags if flag.startswith("--")))
    if "config_file" not in given:
        return given
    from_file, warnings = settings.load(given.pop("config_file"))
    for warning in warnings:
        say(f"warning: {warning}")
    return {**from_file, **given}


def ask(options: Mapping[str, Any], question: Callable[[], T]) -> list[T]:
    """Each rank's answer to a function of a module. RuntimeError if a rank or the job fails."""
    passed = {name: value for name, value in options.items() if name not in ("topology", "topology_file")}
    return run_function.run_with_options(passed, question)


def with_ranks(options: Mapping[str, Any], here: Callable[[], Host] = probe) -> tuple[dict[str, Any], str]:
    """The options with a number of ranks, and a sentence about the number unless the user chose it."""
    chosen = dict(options)
    if chosen.get("np"):
        return chosen, ""
    text, file = chosen.get("hosts"), chosen.get("hostfile")
    if text is not None or file is not None:
        named = hosts.from_text(text) if text is not None else hosts.from_file(str(file))
        chosen["np"] = sum(host.slots for host in named)
        return chosen, f"{chosen['np']} ranks, one for each slot of the hosts, as -np does not say how many."
    allocation = hosts.allocation(os.environ)
    if allocation is not None and allocation.ranks:
        chosen["np"] = allocation.ranks
        return chosen, f"{chosen['np']} ranks, as this {allocation.scheduler} job asks for."
    host = here()
    chosen["np"] = len(host.gpus) or min(2, host.usable_cores)
    why = "one for each GPU" if host.gpus else "one would have nobody to talk to"
    why = why if chosen["np"] > 1 or host.gpus else "there is one core"
    count = words.number_of(chosen["np"], "rank")
    return chosen, f"{count} on this host ({why}); -np and -H say otherwise."


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
    return (*_joined(ask(options, tell)), "")


def _joined(told: Sequence[Told]) -> tuple[tuple[Host, ...], Ranks]:
    found = [each.host for each in told if each.host is not None]
    numbers = {host.name: number for number, host in enumerate(found)}
    if len(numbers) != len(found):
        twice = next(name for name, count in Counter(host.name for host in found).items() if count > 1)
        raise errors.same_host_names(host=twice)
    hosts = tuple(numbers[each.host_name] for each in told)
    return tuple(found), replace(told[0].ranks, hosts=hosts)
