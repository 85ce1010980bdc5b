"""Facts read from a machine: trees of /proc and /sys, and NVML's answers, of simulated machines."""

# private: _ARM: each processor of the list

from __future__ import annotations

import json
import socket
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import topology_machines as made
from refusals import refused

from horovod.topology import errors, machine, nvidia, nvml, processors
from horovod.topology.facts import Gpu, GpuLink, Host, Nic, Socket
from horovod.topology.probe import nics, probe

MAC = "0c:42:a1:00:00:01"


def test_two_sockets(tmp_path: Path) -> None:
    host = probe(made.machine(made.tree(tmp_path, made.two_sockets())))
    assert host.sockets == (
        Socket(0, made.XEON, 2, 2, 33030144 * 1024),
        Socket(1, made.XEON, 2, 2, 33030144 * 1024),
    )
    assert (host.name, host.memory_bytes, host.usable_cores) == ("made", 66060288 * 1024, 4)
    assert host.gpus == host.gpu_links == host.nics == host.notes == ()


def test_threads_of_a_core_are_not_cores(tmp_path: Path) -> None:
    files = made.two_sockets()
    for cpu in range(4):
        folder = f"sys/devices/system/cpu/cpu{cpu}/topology"
        files[f"{folder}/thread_siblings_list"] = "0-1" if cpu < 2 else "2-3"
        del files[f"{folder}/core_cpus_list"]  # as older kernels
    (first, second) = processors.sockets(made.machine(made.tree(tmp_path, files)))
    assert (first.cores, first.threads, second.cores, second.threads) == (1, 2, 1, 2)


def test_a_node_of_two_sockets_is_nobodys_memory(tmp_path: Path) -> None:
    files = made.two_sockets() | {"sys/devices/system/node/node0/cpulist": "0-3"}
    sockets = processors.sockets(made.machine(made.tree(tmp_path, files)))
    assert [socket.memory_bytes for socket in sockets] == [None, None]


def test_a_virtual_machine_that_says_nothing_of_sockets(tmp_path: Path) -> None:
    files = {"proc/cpuinfo": "\n\n".join(f"processor : {n}\nmodel name : QEMU Virtual CPU" for n in range(2))}
    files["sys/devices/system/cpu/cpu0/topology/physical_package_id"] = "-1"
    sockets = processors.sockets(made.machine(made.tree(tmp_path, files)))
    assert sockets == (Socket(None, "QEMU Virtual CPU", None, 2, None),)


@pytest.mark.parametrize(
    "fields, model",
    [
        *(
            (f"CPU implementer : {maker}\nCPU part : {part}", name)
            for maker, part, name in (
                ("0x41", "0xd0c", "ARM Neoverse-N1"),
                ("0x41", "0xd4f", "ARM Neoverse-V2"),
                ("0x46", "0x001", "Fujitsu A64FX"),
                ("0x48", "0xd01", "HiSilicon TaiShan v110"),
                ("0xc0", "0xac3", "Ampere-1"),
                ("0x99", "0x123", "ARM, implementer 0x99, part 0x123"),
            )
        ),
        ("cpu : POWER9, altivec supported", "POWER9, altivec supported"),
        ("BogoMIPS : 50.00", None),
    ],
)
def test_processors_without_a_model_name(tmp_path: Path, fields: str, model: str | None) -> None:
    made.tree(tmp_path, {"proc/cpuinfo": f"processor : 0\n{fields}"})
    assert [found.model for found in processors.sockets(made.machine(tmp_path))] == [model]


def test_machines_that_are_alike_are_one_key() -> None:
    assert len({made.gpu_box(), made.gpu_box()}) == 1


def test_those_that_arm_makes_are_called_so() -> None:
    assert all(name.startswith("ARM ") == (maker == 0x41) for (maker, _), name in processors._ARM.items())


def test_nothing_is_there(tmp_path: Path) -> None:
    host = probe(made.machine(tmp_path, interfaces={"eth0": made.interface("", "10.0.0.1/24")}))
    assert (host.sockets, host.memory_bytes, host.usable_cores) == ((), None, 4)
    assert host.nics == (Nic("eth0", None, None, None, ("10.0.0.1/24",), None),)


@pytest.mark.parametrize(
    "group, files, usable",
    [
        ("0::/", {}, 4),
        ("0::/", {"sys/fs/cgroup/cpu.max": "max 100000"}, 4),
        ("0::/", {"sys/fs/cgroup/cpu.max": "150000 100000"}, 1),
        ("0::/", {"sys/fs/cgroup/cpu.max": "50000 100000"}, 1),
        (
            "0::/a/b",
            {"sys/fs/cgroup/a/cpu.max": "200000 100000", "sys/fs/cgroup/a/b/cpu.max": "max 100000"},
            2,
        ),
        (
            "4:cpu,cpuacct:/docker",
            {
                "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us": "300000",
                "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us": "100000",
            },
            3,
        ),
        ("4:memory:/x", {"sys/fs/cgroup/memory/x/cpu.max": "100000 100000"}, 4),
    ],
)
def test_cores_within_a_container(tmp_path: Path, group: str, files: dict[str, str], usable: int) -> None:
    made.tree(tmp_path, {"proc/self/cgroup": group, **files})
    assert processors.usable_cores(made.machine(tmp_path)) == usable


def test_cores_within_an_affinity(tmp_path: Path) -> None:
    assert processors.usable_cores(made.machine(tmp_path, affinity=frozenset({1, 3}))) == 2


def fast_card(root: Path, **facts: str) -> machine.Machine:
    """A card at 25 Gbit/s with RDMA, on the second socket."""
    files = made.two_sockets() | {"usr/share/hwdata/pci.ids": made.PCI_IDS}
    files |= made.nic_files("ens1", MAC, "0000:3b:00.0", ("0x15b3", "0x1017"), **facts)
    files["sys/devices/pci0000:00/0000:3b:00.0/numa_node"] = "1"
    files["sys/devices/pci0000:00/0000:3b:00.0/infiniband/mlx5_0/ports/1/rate"] = "25 Gb/sec (1X EDR)"
    made.tree(root, files, made.nic_links("ens1", "0000:3b:00.0", "mlx5_core"))
    return made.machine(root, interfaces={"ens1": made.interface(MAC, "10.0.0.1/24")})


def test_a_card_with_rdma(tmp_path: Path) -> None:
    (nic,) = probe(fast_card(tmp_path, speed="25000", operstate="up")).nics
    name = "Mellanox Technologies MT27800 Family [ConnectX-5]"
    assert nic == Nic("ens1", name, "mlx5_core", 25_000_000_000, ("10.0.0.1/24",), 1, True, True)


def test_speed_of_infiniband_and_a_card_without_a_cable(tmp_path: Path) -> None:
    (nic,) = probe(fast_card(tmp_path, operstate="down")).nics
    assert (nic.bits_per_second, nic.is_up) == (25_000_000_000, False)


def test_an_interface_of_another_network_namespace_is_not_mistaken(tmp_path: Path) -> None:
    card = fast_card(tmp_path, speed="25000")
    other = made.interface("02:00:00:00:00:02", "10.77.0.1/24")
    (nic,) = probe(made.machine(card.root, interfaces={"ens1": other})).nics
    assert nic == Nic("ens1", None, None, None, ("10.77.0.1/24",), None)


def test_virtual_interfaces(tmp_path: Path) -> None:
    """A bridge reports a meaningless speed, a bond a true one; an interface without address is left out."""
    names = ("bond0", "docker0", "dummy0", "lo")
    files = {
        f"sys/class/net/{name}/{file}": text
        for name in names
        for file, text in (("address", MAC), ("speed", "10000"))
    }
    files["sys/class/net/bond0/bonding/mode"] = "802.3ad 4"
    files["sys/class/net/docker0/operstate"] = "lowerlayerdown"
    made.tree(tmp_path, files)
    found = {name: made.interface(MAC, f"10.{n}.0.1/16") for n, name in enumerate(names)}
    found |= {"dummy0": made.interface(MAC), "loop": made.interface(MAC, "127.0.0.2/8", "::1/128")}
    found["veth0"] = made.interface("", "10.8.0.1/16")
    bond, docker, last = nics(made.machine(tmp_path, interfaces=found), ())
    assert bond == Nic("bond0", None, None, 10_000_000_000, ("10.0.0.1/16",), None)
    assert docker == Nic("docker0", None, None, None, ("10.1.0.1/16",), None, is_up=False)
    assert last == Nic("veth0", None, None, None, ("10.8.0.1/16",), None)


def test_names_of_pci_devices() -> None:
    lx = "Mellanox Technologies MT27710 Family [ConnectX-4 Lx]"
    assert machine.name_in(made.PCI_IDS, "15b3", "1015") == lx
    assert machine.name_in(made.PCI_IDS, "8086", "1017") == "Intel Corporation not the one above"
    assert machine.name_in(made.PCI_IDS, "15b3", "20b2") is None  # of another maker
    assert machine.name_in(made.PCI_IDS, "15b3", "0006") is None  # a board, no device
    assert machine.name_in(made.PCI_IDS, "ffff", "1017") is None


def asked(cards: tuple[made.Card, ...], root: Path, **more: Any) -> tuple[Any, Any, list[str]]:
    return nvidia.gpus(made.machine(root, nvml=made.answering(made.FakeNvml(cards, **more))), ())


def test_gpus_of_a_box_without_nvlink(tmp_path: Path) -> None:
    files = made.two_sockets() | {
        f"sys/bus/pci/devices/0000:{17 + i}:00.0/numa_node": str(i // 2) for i in range(4)
    }
    fake = made.FakeNvml(made.PCIE_CARDS, made.PCIE_LEVELS)
    host = probe(made.machine(made.tree(tmp_path, files), nvml=made.answering(fake)))
    assert host.gpus[3] == Gpu(3, "NVIDIA GeForce RTX 3090", 24 * 2**30, "0000:20:00.0", 1)
    assert [gpu.socket for gpu in host.gpus] == [0, 0, 1, 1]
    kinds = {(link.first, link.second): link.kind for link in host.gpu_links}
    across = dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], "sockets")
    assert kinds == {(0, 1): "switch", (2, 3): "root", **across}
    assert host.notes == () and fake.opened == 0


def test_gpus_that_all_have_nvlink(tmp_path: Path) -> None:
    gpus, links, notes = asked(made.DGX_CARDS, tmp_path)
    assert [gpu.pci_address for gpu in gpus][:2] == ["0000:0b:00.0", "0000:1b:00.0"]
    assert (gpus[0].memory_bytes, gpus[0].socket, notes) == (81559 * 2**20, None, [])
    assert len(links) == 28 and {(link.kind, link.links, link.bytes_per_second) for link in links} == {
        ("NVLink", 18, 26_562_000_000)
    }


def test_links_to_a_switch_that_leads_nowhere_are_none(tmp_path: Path) -> None:
    """As before the NVSwitch fabric is initialised."""
    levels = {(0, 1): made.SYSTEM}
    _, links, _ = asked(made.DGX_CARDS[:2], tmp_path, levels=levels, reachable=False)
    assert links == (GpuLink(0, 1, "sockets"),)


def linked(index: int, *ends: int, speeds: tuple[int | None, ...] = ()) -> made.Card:
    """A GPU with NVLinks to others, by their indices."""
    return made.Card("G", None, f"00000000:0{index}:00.0", tuple(f"00000000:0{i}:00.0" for i in ends), speeds)


def test_the_speed_of_nvlink_is_known_where_all_links_of_a_gpu_are_alike(tmp_path: Path) -> None:
    cards = (
        linked(0, 1, 1, 2, 2, speeds=(25781,) * 4),
        linked(1, 0, 0, 2, speeds=(25000, 26500, 25000)),
        linked(2, 0, 0, 1),
    )
    assert asked(cards, tmp_path)[1] == (
        GpuLink(0, 1, "NVLink", 2, 25_781_000_000),
        GpuLink(0, 2, "NVLink", 2, 25_781_000_000),
        GpuLink(1, 2, "NVLink", 1, None),
    )
    backwards = (replace(cards[2], address="00000000:00:00.0", nvlinks=("00000000:01:00.0",)), cards[1])
    assert [link.bytes_per_second for link in asked(backwards, tmp_path)[1]] == [
        None
    ]  # a driver that does not report it


@pytest.mark.parametrize(
    ("levels", "node", "kinds"),
    [
        ((made.SINGLE, made.MULTIPLE, made.HOSTBRIDGE), 0, ["switch", "switch", "root"]),
        ((0, made.NODE, made.SYSTEM), None, ["switch", "root", "sockets"]),
        ((made.SYSTEM, made.SYSTEM, made.SYSTEM), 0, ["root", "root", "root"]),  # between nodes of one socket
        ((None, None, None), 0, []),  # as in many virtual machines
    ],
)
def test_ways_by_pcie(
    tmp_path: Path, levels: tuple[int | None, ...], node: int | None, kinds: list[str]
) -> None:
    cards = tuple(made.Card("G", None, f"00000000:0{i}:00.0") for i in range(3))
    pairs = zip(((0, 1), (0, 2), (1, 2)), levels, strict=True)
    fake = made.FakeNvml(cards, {pair: level for pair, level in pairs if level is not None})
    files = made.two_sockets()
    files |= {
        f"sys/bus/pci/devices/0000:0{i}:00.0/numa_node": str(node or 0) for i in range(3) if node is not None
    }
    host = probe(made.machine(made.tree(tmp_path, files), nvml=made.answering(fake)))
    assert [link.kind for link in host.gpu_links] == kinds and host.notes == ()


def test_one_gpu_has_no_links(tmp_path: Path) -> None:
    gpus, links, notes = asked(made.DGX_CARDS[:1], tmp_path)
    assert (len(gpus), links, notes) == (1, (), [])


def test_gpus_without_memory_of_their_own(tmp_path: Path) -> None:
    gpus, _, _ = asked((made.Card("NVIDIA GB10", None, "0000000F:01:00.0"),), tmp_path)
    assert gpus == (Gpu(0, "NVIDIA GB10", None, "000f:01:00.0", None),)


def test_a_driver_that_fails_is_noted(tmp_path: Path) -> None:
    host = probe(made.machine(tmp_path, nvml=made.broken_nvml))
    assert (host.gpus, host.notes) == ((), ("NVML, a part of NVIDIA's driver, failed: Driver Not Loaded",))


def opened_with(module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The result of opening NVML if `import pynvml` gives `module`; None: the import fails."""
    monkeypatch.setitem(sys.modules, "pynvml", module)
    with nvml.opened() as found:
        return found


def test_the_binding_of_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = made.FakeNvml()
    assert opened_with(fake, monkeypatch) is fake and fake.opened == 0
    assert opened_with(made.FakeNvml(init_error=made.LibraryNotFound()), monkeypatch) is None
    with refused(errors.nvml_failed, why="Driver Not Loaded"):
        opened_with(made.FakeNvml(init_error=made.NvmlError("Driver Not Loaded")), monkeypatch)
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    with refused(errors.nvml_failed, why="GPU is lost"), nvml.opened():
        raise made.NvmlError("GPU is lost")
    assert fake.opened == 0


def test_what_plays_the_binding_has_the_names_and_numbers_of_it() -> None:
    real = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed; the extra lab has it")
    fake = made.FakeNvml()
    names = [name for name in dir(fake) if name.lower().startswith("nvml")]
    assert len(names) > 25 and not [name for name in names if not hasattr(real, name)]
    for name in (name for name in names if isinstance(getattr(fake, name), int)):
        assert name == "NVML_NVLINK_MAX_LINKS" or getattr(real, name) == getattr(fake, name), name
    assert issubclass(real.NVMLError_LibraryNotFound, real.NVMLError)


def test_a_missing_binding_is_told_of_only_where_there_is_a_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "_DRIVER", tmp_path / "version")
    assert opened_with(None, monkeypatch) is None
    (tmp_path / "version").touch()
    with refused(errors.nvml_missing, remedy="pip install nvidia-ml-py"):
        opened_with(None, monkeypatch)


def test_commands() -> None:
    assert machine.run_command(["horovod-no-such-command"]) == ""
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    assert machine.run_command([sys.executable, "-c", code]) == "out\n"


def test_commands_that_hang_or_cannot_be_started_say_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_COMMAND_SECONDS", 0.05)
    (tmp_path / "plain").touch()
    for words in (["sleep", "5"], [str(tmp_path / "plain")]):
        assert machine.run_command(words) == ""


def test_addresses() -> None:
    assert machine.with_prefix("10.0.0.1", "255.255.255.0") == "10.0.0.1/24"
    assert machine.with_prefix("fd00::2", "ffff:ffff:ffff:ffff::") == "fd00::2/64"
    assert machine.with_prefix("fe80::1%eth0", "ffff:ffff:ffff:ffff::") == ""
    assert machine.with_prefix("10.0.0.1", None) == "10.0.0.1/32"
    assert machine.with_prefix("fd00::2", None) == "fd00::2/128"
    assert machine.numbers_in("0-2,7\n") == [0, 1, 2, 7] and machine.numbers_in("") == []


def test_lists_of_numbers_that_no_kernel_writes() -> None:
    most = machine.MOST_NUMBERS
    assert len(machine.numbers_in(f"0-{most - 1}")) == len(machine.numbers_in(f"7,0-{most - 2}")) == most
    for text in ("a", "1-b", "-"):
        with pytest.raises(ValueError):
            machine.numbers_in(text)
    for text in (f"0-{most}", f"7,0-{most - 1}"):
        with refused(errors.too_many_numbers, got=text, most=most):
            machine.numbers_in(text)


def test_this_machine() -> None:
    host = probe()
    assert host.name == socket.gethostname()
    assert host.memory_bytes == psutil.virtual_memory().total
    assert 1 <= host.usable_cores <= len(psutil.Process().cpu_affinity())
    assert sum(found.threads for found in host.sockets) == psutil.cpu_count()


def test_records(tmp_path: Path) -> None:
    for host in (made.gpu_box(), made.pcie_host(1), probe(made.machine(tmp_path))):
        assert Host.from_record(json.loads(json.dumps(asdict(host)))) == host
    with refused(errors.no_host_record):
        Host.from_record({**asdict(made.plain_host(1)), "surprise": 1})
    with refused(errors.no_host_record, why="'nics'"):
        Host.from_record({"name": "x", "sockets": [], "gpus": [], "gpu_links": []})
