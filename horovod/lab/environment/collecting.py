"""Collects the environment of this host, or of the hosts that a job runs on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from horovod.common.launched import LOCAL_RANKS
from horovod.lab.environment import hardware, software
from horovod.lab.environment.entries import HARDWARE, SOFTWARE, Entry, Environment
from horovod.topology import job
from horovod.topology.facts import Host
from horovod.topology.language import LANGUAGES
from horovod.topology.machine import Machine
from horovod.topology.probe import probe

_COUNTED = ("cores", "memory", "gpu_number")  # rows of totals, which several hosts multiply


@dataclass(frozen=True)
class HostRows:
    host: Host
    rows: dict[str, str | None]


def collect(horovodrun_arguments: Sequence[str] = (), language: str = "en") -> Environment:
    """The environment of this host, or of the hosts that arguments of horovodrun name.

    Ranks started on the hosts collect the facts, so one rank for each host is enough.

    Args:
        horovodrun_arguments: such as ["-np", "2", "-H", "h1:1,h2:1"]; empty for this host.
        language: "en" or "zh", of texts in the values.

    Raises:
        LaunchError, RuntimeError: hosts could not be asked, with the reason.
    """
    if not horovodrun_arguments:
        return joined([of_host(Machine(), language)])
    options, _ = job.with_ranks(job.options_of(horovodrun_arguments))
    answers = [answer for answer in job.ask(options, partial(of_this_rank, language)) if answer is not None]
    return joined(list({answer.host.name: answer for answer in answers}.values()))


def of_this_rank(language: str = "en") -> HostRows | None:
    """The rows of this rank's host, on the first rank of each host; else None."""
    local_rank = next((os.environ[name] for name in LOCAL_RANKS if name in os.environ), "0")
    return of_host(Machine(), language) if local_rank == "0" else None


def of_host(machine: Machine, language: str = "en") -> HostRows:
    host, say = probe(machine), LANGUAGES[language]
    return HostRows(host, {**hardware.rows(host, say), **software.rows(host, machine, say)})


def joined(found: Sequence[HostRows]) -> Environment:
    """One table of all hosts: a value that all share appears once, others with the host's name."""
    names = [each.host.name for each in found]
    servers = Entry("hardware", "servers", f"{len(names)} ({', '.join(names)})")
    entries = [Entry("hardware", name, _value(found, name)) for name in HARDWARE if name != "servers"]
    entries += [Entry("software", name, _value(found, name)) for name in SOFTWARE]
    return Environment(tuple(each.host for each in found), (servers, *entries))


def _value(found: Sequence[HostRows], name: str) -> str | None:
    values = [each.rows[name] for each in found]
    if len(set(values)) > 1:
        return "; ".join(f"{each.host.name}: {each.rows[name] or '-'}" for each in found)
    if values[0] is None or len(found) == 1 or name not in _COUNTED:
        return values[0]
    return f"{len(found)} x ({values[0]})" if "," in values[0] else f"{len(found)} x {values[0]}"
