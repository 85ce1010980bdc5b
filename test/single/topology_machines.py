"""Machines that do not exist: trees of /proc and /sys, and what nvidia-smi prints, as it is documented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from horovod.topology.facts import Gpu, GpuLink, Host, Links, Nic, Ranks, Socket
from horovod.topology.machine import Answer, Interface, Machine

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

# Four GPUs without NVLink: 0 and 1 on a switch, 2 and 3 on the root of the other socket.
PCIE_QUERY = (
    "\n".join(f"{i}, NVIDIA GeForce RTX 3090, 24576, 00000000:{17 + i}:00.0" for i in range(4)) + "\n"
)
PCIE_MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tPIX\tSYS\tSYS\tPHB\t0-1\t0\t\tN/A
GPU1\tPIX\t X \tSYS\tSYS\tPHB\t0-1\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tPHB\tSYS\t2-3\t1\t\tN/A
GPU3\tSYS\tSYS\tPHB\t X \tSYS\t2-3\t1\t\tN/A
NIC0\tPHB\tPHB\tSYS\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

DGX_QUERY = "\n".join(f"{i}, NVIDIA H100 80GB HBM3, 81559, 00000000:{i:X}B:00.0" for i in range(8)) + "\n"
_COLUMNS = [f"GPU{i}" for i in range(8)]
DGX_MATRIX = "\t" + "\t".join([*_COLUMNS, "CPU Affinity", "NUMA Affinity"]) + "\n"
for _i in range(8):
    _cells = [" X " if _j == _i else "NV18" for _j in range(8)]
    DGX_MATRIX += (
        "\t".join([f"GPU{_i}", *_cells, "0-55,112-167" if _i < 4 else "56-111,168-223", str(_i // 4)]) + "\n"
    )
DGX_STATUS = "".join(
    f"GPU {i}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000)\n"
    + "".join(f"\t Link {j}: 26.562 GB/s\n" for j in range(18))
    for i in range(8)
)
SMI = ("nvidia-smi", "--query-gpu"), ("nvidia-smi", "topo"), ("nvidia-smi", "nvlink")


def commands(answers: Mapping[Sequence[str], Answer | str]):
    """Answers by how a command begins; all others do not exist."""

    def run(words: Sequence[str]) -> Answer:
        for begin, answer in answers.items():
            if list(map(str.startswith, words, begin)) == [True] * len(begin):
                return Answer(0, answer) if isinstance(answer, str) else answer
        return Answer(None)

    return run


def tree(root: Path, files: Mapping[str, str], links: Mapping[str, str] | None = None) -> Path:
    """Files with texts, and links with targets inside of the tree."""
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    for path, target in (links or {}).items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / target).mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(root / target)
    return root


def machine(root: Path, **more: object) -> Machine:
    """With four processors allowed, no interface and no command, unless more is said."""
    facts = {"name": "made", "affinity": frozenset(range(4)), "interfaces": {}, "run": commands({})}
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
    """Files of a PCI network card; `facts` are files of its own folder."""
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
    """Eight GPUs, each with twelve links to a switch of NVLink, on two sockets."""
    gpus = tuple(Gpu(i, "NVIDIA A100-SXM4-80GB", 80 * 2**30, f"0000:0{i}:00.0", i // 4) for i in range(8))
    links = tuple(GpuLink(i, j, "NVLink", 12, 25 * 10**9) for i in range(8) for j in range(i + 1, 8))
    card = "Mellanox Technologies MT28908 Family [ConnectX-6]"
    nics = tuple(
        Nic(f"ib{i}", card, "mlx5_core", 200 * 10**9, (f"10.1.{i}.1/24",), i // 4, True) for i in range(8)
    )
    sockets = tuple(Socket(i, "AMD EPYC 7742 64-Core Processor", 64, 128, 2**40) for i in range(2))
    return Host(name, sockets, 2**41, 256, gpus, links, nics)


def pcie_host(number: int) -> Host:
    """Two GPUs on a switch of one socket, two on the root of the other, and a card on each socket."""
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
    return Ranks(hosts, "mpi" if several else "shared_memory", 1 < len(set(hosts)) < len(hosts), MEASURED)
