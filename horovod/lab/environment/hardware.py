"""The hardware rows of one host."""

from __future__ import annotations

from horovod.topology import words
from horovod.topology.facts import Host, Nic
from horovod.topology.language import ENGLISH, Language


def rows(host: Host, say: Language = ENGLISH) -> dict[str, str | None]:
    """Values by name, without `servers`, which concerns all hosts."""
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


def _listed(values: object) -> str | None:
    parts = list(values)  # type: ignore[call-overload]
    return "; ".join(parts) or None
