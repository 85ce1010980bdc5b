"""Asks ranks on the hosts that horovodrun's arguments name, started as horovodrun starts them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from horovod.common.options import OPTIONS
from horovod.runner import command_line, hosts, run_function, settings
from horovod.runner.streams import say
from horovod.topology import errors, words
from horovod.topology.facts import Host
from horovod.topology.probe import probe

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
