"""The rows of the environment table, and their JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from horovod.lab import errors
from horovod.topology.facts import Host

HARDWARE = (
    "servers",
    "cpu",
    "cores",
    "memory",
    "nic",
    "nic_speed",
    "gpu",
    "gpu_number",
    "gpu_connection",
)
SOFTWARE = (
    "os",
    "kernel",
    "nic_driver",
    "gpu_driver",
    "python",
    "pytorch",
    "numpy",
    "horovod",
    "cuda",
    "mpi",
    "nccl",
)


@dataclass(frozen=True)
class Entry:
    """A row. Section and name are identifiers, for which a report has texts in its language."""

    section: str  # "hardware" or "software"
    name: str
    value: str | None  # None: there is none, or it is unknown


@dataclass(frozen=True)
class Environment:
    hosts: tuple[Host, ...]
    entries: tuple[Entry, ...]

    def value(self, section: str, name: str) -> str | None:
        """The value of the row with this name. KeyError if there is no such row."""
        return {(entry.section, entry.name): entry.value for entry in self.entries}[section, name]


def to_json(environment: Environment) -> str:
    """The text of environment.json."""
    hosts = [asdict(host) for host in environment.hosts]
    entries = [asdict(entry) for entry in environment.entries]
    return json.dumps({"hosts": hosts, "entries": entries}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Environment:
    """The environment in a text of to_json. ValueError, with the reason, for another text."""
    try:
        try:
            fields = json.loads(text)
        except (ValueError, RecursionError) as error:  # also an integer of thousands of digits
            raise TypeError(f"no JSON: {error}") from None
        hosts = tuple(Host.from_record(host) for host in fields["hosts"])
        return Environment(hosts, tuple(Entry(**entry) for entry in fields["entries"]))
    except (KeyError, TypeError) as error:
        raise errors.no_environment(why=str(error)) from None
