"""Hosts and their parts, and ranks on them. What could not be found out is None or empty, never guessed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Socket:
    """A processor package and the memory beside it."""

    number: int | None  # None: the machine does not tell its sockets apart, and this stands for all of them
    model: str | None
    cores: int | None
    threads: int  # that the kernel can run at once: two for each core with SMT
    memory_bytes: int | None  # of its NUMA nodes


@dataclass(frozen=True)
class Gpu:
    index: int
    model: str
    memory_bytes: int | None  # None where it has none of its own
    pci_address: str  # "0000:3b:00.0"
    socket: int | None  # whose PCIe root it hangs on


@dataclass(frozen=True)
class GpuLink:
    """How two GPUs of a host reach each other."""

    first: int  # index
    second: int
    kind: str  # "NVLink", or by PCIe: "switch" (of both), "root" (of their socket), "sockets" (across them)
    links: int = 1  # how many NVLinks
    bytes_per_second: int | None = None  # of each NVLink, in one direction


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
    is_up: bool = True


@dataclass(frozen=True)
class Host:
    name: str
    sockets: tuple[Socket, ...]
    memory_bytes: int | None
    usable_cores: int  # hardware threads, within this process' affinity and control group
    gpus: tuple[Gpu, ...] = ()
    gpu_links: tuple[GpuLink, ...] = ()
    nics: tuple[Nic, ...] = ()
    notes: tuple[str, ...] = ()  # of what was there and could not be asked


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
    """The ranks of a job: where they are, and how they reach each other."""

    hosts: tuple[int, ...]  # by rank: which of the hosts it is on
    shares_memory: bool  # all of them
    has_host_windows: bool  # the ranks of each host share memory, though not all ranks are on one host
    links: Links
    algorithm: str = "auto"  # HOROVOD_ALLREDUCE_ALGORITHM
    is_deterministic: bool = False

    def of(self, host: int) -> list[int]:
        return [rank for rank, own in enumerate(self.hosts) if own == host]
