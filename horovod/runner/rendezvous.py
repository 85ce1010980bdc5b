"""`horovodrun --ddp`: the address at which ranks of torch.distributed meet, and variables as of torchrun."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horovod.common.compressors import DDP_COMPRESSION
from horovod.runner import errors
from horovod.runner.agents.preparation import Prepared
from horovod.runner.hosts import is_local
from horovod.runner.job_hosts import JobHosts

# The variable and the entry point group by which torch loads installed packages when it is imported.
AUTOLOAD, TORCH_GROUP, PACKAGE = "TORCH_DEVICE_BACKEND_AUTOLOAD", "torch.backends", "horovod"
LOOPBACK, HIGHEST_PORT = "127.0.0.1", 65535
_GLOO, _THREADS = "GLOO_SOCKET_IFNAME", "OMP_NUM_THREADS"


@dataclass(frozen=True)
class Rendezvous:
    """`address` and `port` of rank 0's host; each host's number of ranks and interfaces for gloo."""

    address: str
    port: int
    hosts: tuple[tuple[int, tuple[str, ...]], ...]

    def variables(self, run_id: str) -> dict[str, str]:
        """Return all ranks' variables. Libraries take the run's id as a sign of a launcher."""
        size = str(sum(ranks for ranks, _ in self.hosts))
        return {
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "WORLD_SIZE": size,
            "ROLE_WORLD_SIZE": size,
            "ROLE_NAME": "default",
            "GROUP_WORLD_SIZE": str(len(self.hosts)),
            "TORCHELASTIC_RUN_ID": run_id,
            "TORCHELASTIC_RESTART_COUNT": "0",
            "TORCHELASTIC_MAX_RESTARTS": "0",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
        }

    def variables_of_ranks(self, environment: Mapping[str, str]) -> list[dict[str, str]]:
        """Return each rank's further variables, except those that the user's environment sets."""
        found: list[dict[str, str]] = []
        for group, (size, interfaces) in enumerate(self.hosts):
            for local_rank in range(size):
                rank = len(found)
                place = {"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": local_rank, "LOCAL_WORLD_SIZE": size}
                place |= {"GROUP_RANK": group, "NODE_RANK": group}
                usual = {_GLOO: ",".join(interfaces)} if interfaces else {}
                if size > 1:  # the default is a thread per core for each rank
                    usual[_THREADS] = "1"
                own = {name: text for name, text in usual.items() if name not in environment}
                found.append({**own, **{name: str(number) for name, number in place.items()}})
        return found


def compression_warning(environment: Mapping[str, str]) -> str:
    """Return why HOROVOD_DDP_COMPRESSION would not affect an unchanged script; "" if it would."""
    if environment.get(DDP_COMPRESSION, "none") in ("", "none"):
        return ""
    from importlib.metadata import entry_points  # here, as few jobs need it, and it delays the start

    why = ""
    if environment.get(AUTOLOAD, "1") != "1":
        why = f"{AUTOLOAD}={environment[AUTOLOAD]} keeps torch from loading it: unset that variable"
    elif PACKAGE not in {point.name for point in entry_points(group=TORCH_GROUP)}:
        why = (
            "this installation of horovod does not announce itself to torch: install it again (pip install .)"
        )
    if not why:
        return ""
    return f"gradients will not be compressed, as {why}, or start the script by python -m horovod.torch.ddp"


def of(
    values: Mapping[str, Any],
    hosts: JobHosts,
    prepared: Prepared,
    free_port: Callable[[str | None, int], int],
) -> Rendezvous:
    """Return the meeting place of this job's ranks. LaunchError if the user's port is in use there.

    `free_port(host, port)` returns that port if it is free on the host (None: this one), else 0; for port 0
    it returns any free port.
    """
    ways = prepared.choice.networks
    described = [prepared.descriptions.get(host.name) for host in hosts.hosts]
    along = [host.along(ways) if host is not None else [] for host in described]
    address = values.get("master_addr") or _address(hosts, along[0])
    port = _port(hosts, values.get("master_port", 0), free_port)
    interfaces = [tuple(dict.fromkeys(name for name, _ in ends)) for ends in along]
    if not prepared.descriptions:  # no hosts were queried: use the user's choice
        interfaces = [prepared.choice.interfaces] * len(hosts.hosts)
    return Rendezvous(address, port, tuple(zip((h.slots for h in hosts.hosts), interfaces, strict=True)))


def _address(hosts: JobHosts, along: list[tuple[str, str]]) -> str:
    if len(hosts.names()) == 1:
        return LOOPBACK
    if along:
        return along[0][1]
    first = hosts.hosts[0].name  # no network was found, and a warning has told the user
    return socket.gethostname() if is_local(first) else first


def _port(hosts: JobHosts, wanted: int, free_port: Callable[[str | None, int], int]) -> int:
    """Return `wanted`, or a free port of rank 0's host if it is 0."""
    first = hosts.hosts[0].name
    if wanted > HIGHEST_PORT:
        why = f"ports end at {HIGHEST_PORT}"
        raise errors.wrong_value(option="--master-port", value=wanted, why=why)
    port = free_port(None if is_local(first) else first, wanted)
    if port == 0 and wanted:
        raise errors.port_in_use(port=wanted, host=first)
    if port == 0:
        raise errors.no_free_port(host=first)
    return port
