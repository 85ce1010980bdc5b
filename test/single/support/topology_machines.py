"""Simulated machines: trees of /proc and /sys, and NVML's answers as its documentation defines them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from horovod.topology import nvml as real
from horovod.topology.facts import Gpu, GpuLink, Host, Links, Nic, Ranks, Socket
from horovod.topology.machine import Interface, Machine

XEON = "Intel(R) Xeon(R) Gold 6348 CPU @ 2.60GHz"
PCI_IDS = """\
# a comment
10de  NVIDIA Corporation
\t20b2  GA100 [A100 SXM4 80GB]
15b3  Mellanox Technologies
\t1015  MT27710 Family [ConnectX-4 Lx]
\t1017  MT27800 Family [ConnectX-5]
\t\t15b3 0006  ConnectX-5 EN network interface card
8086  Intel Corporation
\t1017  not the one above
C 02  Network controller
"""


class NvmlError(Exception):
    pass


class LibraryNotFound(NvmlError):
    pass


@dataclass(frozen=True)
class Card:
    """A GPU as NVML reports it. `nvlinks`: the peer of each active link, a PCI address or "switch"."""

    name: str
    memory: int | None
    address: str
    nvlinks: tuple[str, ...] = ()
    speeds: tuple[int | None, ...] = ()  # MB/s of each link

    @property
    def bus(self) -> SimpleNamespace:
        return SimpleNamespace(busId=self.address.encode())


@dataclass
class FakeNvml:
    """A fake pynvml: handles are the cards. `levels`: NVML_TOPOLOGY_... by pairs of indices."""

    cards: tuple[Card, ...] = ()
    levels: Mapping[tuple[int, int], int] = field(default_factory=dict)
    reachable: bool = True  # by NVLink through switches
    init_error: NvmlError | None = None
    opened: int = 0

    NVMLError, NVMLError_LibraryNotFound = NvmlError, LibraryNotFound
    NVML_SUCCESS = 0
    NVML_FEATURE_ENABLED = 1
    NVML_NVLINK_MAX_LINKS = 18
    NVML_NVLINK_DEVICE_TYPE_GPU, NVML_NVLINK_DEVICE_TYPE_SWITCH = 0, 2
    NVML_FI_DEV_NVLINK_GET_SPEED = 164
    NVML_P2P_CAPS_INDEX_NVLINK, NVML_P2P_STATUS_OK = 2, 0
    NVML_TOPOLOGY_MULTIPLE, NVML_TOPOLOGY_SYSTEM = 20, 50
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def nvmlInit(self) -> None:
        if self.init_error is not None:
            raise self.init_error
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetDriverVersion(self) -> str:
        return "535.104.05"

    def nvmlSystemGetCudaDriverVersion(self) -> int:
        return 12020

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Card:
        if uuid != "GPU-0":
            raise NvmlError("Not Found")
        return self.cards[0]

    def nvmlDeviceGetName(self, card: Card) -> str:
        return card.name

    def nvmlDeviceGetMemoryInfo(self, card: Card) -> SimpleNamespace:
        if card.memory is None:
            raise NvmlError("Not Supported")
        return SimpleNamespace(total=card.memory)

    def nvmlDeviceGetPciInfo(self, card: Card) -> SimpleNamespace:
        return card.bus

    def nvmlDeviceGetNvLinkState(self, card: Card, link: int) -> int:
        if not card.nvlinks:
            raise NvmlError("Not Supported")
        return int(link < len(card.nvlinks))

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, card: Card, link: int) -> int:
        return 2 if card.nvlinks[link] == "switch" else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, card: Card, link: int) -> SimpleNamespace:
        return SimpleNamespace(busId=card.nvlinks[link].encode())

    def nvmlDeviceGetP2PStatus(self, first: Card, second: Card, kind: int) -> int:
        return 0 if self.reachable else 5

    def nvmlDeviceGetFieldValues(self, card: Card, fields: list[tuple[int, int]]) -> list[SimpleNamespace]:
        speeds = [card.speeds[link] if link < len(card.speeds) else None for _, link in fields]
        return [
            SimpleNamespace(nvmlReturn=0 if speed else 3, value=SimpleNamespace(uiVal=speed))
            for speed in speeds
        ]

    def nvmlDeviceGetTopologyCommonAncestor(self, first: Card, second: Card) -> int:
        try:
            return self.levels[self.cards.index(first), self.cards.index(second)]
        except KeyError:
            raise NvmlError("Not Supported") from None

    def nvmlDeviceGetClockInfo(self, card: Card, clock: int) -> int:
        return 1980 if clock == self.NVML_CLOCK_SM else 2619

    nvmlDeviceGetMaxClockInfo = nvmlDeviceGetClockInfo

    def nvmlDeviceGetPowerManagementLimit(self, card: Card) -> int:
        return 700_000

    def nvmlDeviceGetTemperature(self, card: Card, sensor: int) -> int:
        return 35

    def nvmlDeviceGetCurrPcieLinkGeneration(self, card: Card) -> int:
        return 5

    def nvmlDeviceGetCurrPcieLinkWidth(self, card: Card) -> int:
        raise NvmlError("Not Supported")


@contextmanager
def no_nvml() -> Iterator[None]:
    yield None


@contextmanager
def broken_nvml() -> Iterator[None]:
    raise RuntimeError("NVML, a part of NVIDIA's driver, failed: Driver Not Loaded")
    yield None


def answering(nvml: FakeNvml) -> Callable[[], AbstractContextManager[Any]]:
    """The value of a machine's field `nvml`."""

    @contextmanager
    def opened() -> Iterator[Any]:
        with patch.dict(sys.modules, {"pynvml": nvml}), real.opened() as found:
            yield found

    return opened


SINGLE, MULTIPLE, HOSTBRIDGE, NODE, SYSTEM = 10, 20, 30, 40, 50  # NVML_TOPOLOGY_...
# Four GPUs without NVLink: 0 and 1 on a switch, 2 and 3 on the root of the other socket.
PCIE_CARDS = tuple(Card("NVIDIA GeForce RTX 3090", 24 * 2**30, f"00000000:{17 + i}:00.0") for i in range(4))
PCIE_LEVELS = {(i, j): SYSTEM for i in range(4) for j in range(i + 1, 4)} | {
    (0, 1): SINGLE,
    (2, 3): HOSTBRIDGE,
}
DGX_CARDS = tuple(
    Card("NVIDIA H100 80GB HBM3", 81559 * 2**20, f"00000000:{i:X}B:00.0", ("switch",) * 18, (26562,) * 18)
    for i in range(8)
)


def commands(answers: Mapping[Sequence[str], str]):
    """A `run` that answers commands by their first words; other commands do not exist."""

    def run(words: Sequence[str]) -> str:
        for begin, answer in answers.items():
            if list(map(str.startswith, words, begin)) == [True] * len(begin):
                return answer
        return ""

    return run


def tree(root: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    """Write files with texts, and links with targets inside the tree."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    for path, target in (links or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / target).mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(root / target)
    return root


def machine(root: Path, **more: object) -> Machine:
    """A machine with four allowed processors; by default without interface, command and GPU."""
    facts = {"name": "made", "affinity": frozenset(range(4)), "interfaces": {}, "run": commands({})}
    facts["nvml"] = no_nvml
    return Machine(root, **{**facts, **more})  # type: ignore[arg-type]


def two_sockets() -> dict[str, str]:
    """Files of two sockets of two cores without SMT, each with a NUMA node."""
    cpuinfo = [f"processor\t: {cpu}\nmodel name\t: {XEON}\nphysical id\t: {cpu // 2}" for cpu in range(4)]
    files = {
        "proc/cpuinfo": "\n\n".join(cpuinfo),
        "proc/meminfo": "MemTotal:       66060288 kB\nMemFree:        1 kB",
        "sys/devices/system/cpu/online": "0-3",
    }
    for cpu in range(4):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = str(cpu // 2)
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"] = str(cpu)
    for node in (0, 1):
        files[f"sys/devices/system/node/node{node}/cpulist"] = f"{2 * node}-{2 * node + 1}"
        files[f"sys/devices/system/node/node{node}/meminfo"] = f"Node {node} MemTotal:       33030144 kB"
    return files


def nic_files(name: str, address: str, pci: str, ids: tuple[str, str], **facts: str) -> dict[str, str]:
    """Files of a PCI network card; `facts` are files in its folder."""
    device = f"sys/devices/pci0000:00/{pci}"
    files = {f"sys/class/net/{name}/address": address, f"{device}/vendor": ids[0], f"{device}/device": ids[1]}
    return files | {f"sys/class/net/{name}/{file}": text for file, text in facts.items()}


def nic_links(name: str, pci: str, driver: str) -> dict[str, str]:
    device = f"sys/devices/pci0000:00/{pci}"
    return {
        f"sys/class/net/{name}/device": device,
        f"sys/bus/pci/devices/{pci}": device,
        f"{device}/driver": f"sys/bus/pci/drivers/{driver}",
    }


def interface(hardware: str, *addresses: str) -> Interface:
    return Interface(hardware, addresses)


# Hosts for drawings.

MEASURED = Links(3e-6, 1e-10, 60e-6, 8.5e-9, True)


def gpu_box(name: str = "dgx01") -> Host:
    """Eight GPUs on two sockets, each with twelve links to an NVLink switch."""
    gpus = tuple(Gpu(i, "NVIDIA A100-SXM4-80GB", 80 * 2**30, f"0000:0{i}:00.0", i // 4) for i in range(8))
    links = tuple(GpuLink(i, j, "NVLink", 12, 25 * 10**9) for i in range(8) for j in range(i + 1, 8))
    card = "Mellanox Technologies MT28908 Family [ConnectX-6]"
    nics = tuple(
        Nic(f"ib{i}", card, "mlx5_core", 200 * 10**9, (f"10.1.{i}.1/24",), i // 4, True) for i in range(8)
    )
    sockets = tuple(Socket(i, "AMD EPYC 7742 64-Core Processor", 64, 128, 2**40) for i in range(2))
    return Host(name, sockets, 2**41, 256, gpus, links, nics)


def pcie_host(number: int) -> Host:
    """Two GPUs on a switch of one socket, two on the other's root, and a network card on each socket."""
    gpus = tuple(
        Gpu(i, "NVIDIA GeForce RTX 3090", 24 * 2**30, f"0000:{17 + i}:00.0", i // 2) for i in range(4)
    )
    kinds = {(0, 1): "switch", (2, 3): "root"}
    links = tuple(GpuLink(i, j, kinds.get((i, j), "sockets")) for i in range(4) for j in range(i + 1, 4))
    fast = "Mellanox Technologies MT27800 Family [ConnectX-5]"
    nics = (
        Nic(
            "eno1",
            "Intel Corporation Ethernet Connection X722",
            "i40e",
            10**9,
            (f"192.168.0.{number}/24",),
            1,
        ),
        Nic("ens1", fast, "mlx5_core", 25 * 10**9, (f"10.0.0.{number}/24",), 0, True),
    )
    sockets = tuple(Socket(i, XEON, 28, 56, 2**38) for i in range(2))
    return Host(f"node{number}", sockets, 2**39, 112, gpus, links, nics)


def plain_host(number: int) -> Host:
    nic = Nic("eth0", None, None, None, (f"10.77.0.{number}/24",), None)
    return Host(f"h{number}", (Socket(0, "AMD EPYC", 2, 2, None),), 24 * 2**30, 2, nics=(nic,))


def ranks_on(*hosts: int) -> Ranks:
    """Ranks by host, as the core places them, with a network of 1 Gbit/s."""
    several = len(set(hosts)) > 1
    return Ranks(hosts, not several, 1 < len(set(hosts)) < len(hosts), MEASURED)
