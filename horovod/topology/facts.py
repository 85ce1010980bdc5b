"""Hosts and their parts. What could not be found out is None or empty, never guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Socket:
    """A processor package and the memory beside it."""

    number: int
    model: str
    cores: int
    threads: int
    memory_bytes: int | None  # of its NUMA nodes


@dataclass(frozen=True)
class Gpu:
    index: int
    model: str
    memory_bytes: int
    pci_address: str  # "0000:3b:00.0"
    socket: int | None  # whose PCIe root it hangs on


@dataclass(frozen=True)
class GpuLink:
    """How two GPUs of a host reach each other."""

    first: int  # index
    second: int
    kind: str  # "NVLink", or by PCIe: "switch" (of both), "root" (of their socket), "sockets" (across them)
    links: int = 1  # how many NVLinks


@dataclass(frozen=True)
class Nic:
    """A network interface that is not the loopback."""

    name: str
    model: str | None  # None for a virtual one
    driver: str | None
    bits_per_second: int | None  # None where the driver does not say, as of most virtual ones
    addresses: tuple[str, ...]  # with prefix, "10.0.0.1/24"
    socket: int | None
    is_rdma: bool = False  # InfiniBand, RoCE, or the like


@dataclass(frozen=True)
class Host:
    name: str
    sockets: tuple[Socket, ...]
    memory_bytes: int
    usable_cores: int  # by this process, within its affinity and control group
    gpus: tuple[Gpu, ...] = ()
    gpu_links: tuple[GpuLink, ...] = ()
    nics: tuple[Nic, ...] = ()
