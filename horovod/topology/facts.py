"""Hosts and their parts, and ranks on them. Unknown facts are None or empty, never guessed."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from horovod.topology import errors


@dataclass(frozen=True)
class Socket:
    """A processor package and the memory beside it."""

    number: int | None  # None: the machine does not distinguish its sockets, and this one represents all
    model: str | None
    cores: int | None
    threads: int  # hardware threads: two for each core with SMT
    memory_bytes: int | None  # of its NUMA nodes


@dataclass(frozen=True)
class Gpu:
    index: int
    model: str
    memory_bytes: int | None  # None if it has no memory of its own
    pci_address: str  # "0000:3b:00.0"
    socket: int | None  # that has its PCIe root


@dataclass(frozen=True)
class GpuLink:
    """The connection between two GPUs of a host."""

    first: int  # index
    second: int
    kind: str  # "NVLink", or by PCIe: "switch" (of both), "root" (of their socket), "sockets" (across them)
    links: int = 1  # number of NVLinks
    bytes_per_second: int | None = None  # of each NVLink, in one direction


@dataclass(frozen=True)
class Nic:
    """A network interface other than the loopback."""

    name: str
    model: str | None  # None for a virtual one
    driver: str | None
    bits_per_second: int | None  # None if the driver does not know, as most virtual ones
    addresses: tuple[str, ...]  # with prefix, "10.0.0.1/24"
    socket: int | None
    is_rdma: bool = False  # InfiniBand, RoCE, or similar
    is_up: bool = True

    @property
    def networks(self) -> tuple[str, ...]:
        """Of its addresses: "10.0.0.0/24"."""
        return tuple(str(ipaddress.ip_interface(text).network) for text in self.addresses)


@dataclass(frozen=True)
class Host:
    name: str
    sockets: tuple[Socket, ...]
    memory_bytes: int | None
    usable_cores: int  # hardware threads, within this process' affinity and control group
    gpus: tuple[Gpu, ...] = ()
    gpu_links: tuple[GpuLink, ...] = ()
    nics: tuple[Nic, ...] = ()
    notes: tuple[str, ...] = ()  # of parts that exist but gave no answer

    @staticmethod
    def from_record(record: Mapping[str, Any]) -> Host:
        """The host that asdict() made a record of. ValueError names missing or unknown fields."""
        parts = {"sockets": Socket, "gpus": Gpu, "gpu_links": GpuLink, "nics": Nic}
        try:
            fields = dict(record)
            for name, kind in parts.items():
                fields[name] = tuple(kind(**_with_tuples(part)) for part in fields[name])
            return Host(**_with_tuples(fields))
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise errors.no_host_record(why=str(error)) from None


@dataclass(frozen=True)
class Links:
    """The cost of moving bytes in a job, in seconds: measured by the core when it starts, or assumed."""

    memory_latency: float
    memory_byte: float
    network_latency: float
    network_byte: float
    is_measured: bool


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job: their hosts, and their connections."""

    hosts: tuple[int, ...]  # by rank: index of its host
    shares_memory: bool  # all of them
    has_host_windows: bool  # ranks of each host share memory, but not all ranks are on one host
    links: Links
    algorithm: str = "auto"  # HOROVOD_ALLREDUCE_ALGORITHM
    is_deterministic: bool = False

    @property
    def spans_hosts(self) -> bool:
        return len(set(self.hosts)) > 1

    def of(self, host: int) -> list[int]:
        return [rank for rank, own in enumerate(self.hosts) if own == host]


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
