"""Ranks that srun has started, and no MPI: task 0 has a store on the first host of the step."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from horovod.common import errors, nodelists
from horovod.common.launched import Launch
from horovod.common.rendezvous.store import StoreRendezvous
from horovod.common.rendezvous.torchrun import in_torchs_store
from horovod.common.sentences import facts_of

__all__ = ["by_step", "first_host", "port_of_step"]

_LOWEST_PORT, _PORTS = 10_000, 20_000  # below those that systems give to connections
_LISTS = ("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST")


def by_step(launch: Launch, environment: Mapping[str, str], ranks: Sequence[int]) -> StoreRendezvous:
    """On the first host, at a port made of the step's number; MASTER_ADDR, MASTER_PORT overrule either.

    ValueError: Slurm does not say the hosts, or rank 0 is not on the first.
    """
    host = environment.get("MASTER_ADDR") or first_host(environment)
    if (
        launch.rank == 0
        and environment.get("SLURM_NODEID", "0") != "0"
        and not environment.get("MASTER_ADDR")
    ):
        raise errors.first_task_elsewhere(node=environment["SLURM_NODEID"])
    port = environment.get("MASTER_PORT") or str(port_of_step(environment))
    if not (port.isascii() and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise errors.wrong_master_port(value=port)
    return in_torchs_store(launch, environment, ranks, (host, int(port)), launch.rank == 0)


def first_host(environment: Mapping[str, str]) -> str:
    """Of the step, else of the job. ValueError where Slurm does not say."""
    name = next((name for name in _LISTS if environment.get(name)), "")
    if not name:
        raise errors.hosts_not_said(settings=" and ".join(_LISTS))
    try:
        return nodelists.node_names(environment[name])[0]
    except (ValueError, IndexError) as error:
        raise errors.hosts_not_read(**facts_of(error, setting=name, value=environment[name])) from None


def port_of_step(environment: Mapping[str, str]) -> int:
    """The same for all tasks of a step, and likely another one for other steps."""
    step = f"{environment.get('SLURM_JOB_ID', '')}.{environment.get('SLURM_STEP_ID', '')}"
    drawn = int.from_bytes(hashlib.sha256(step.encode(errors="surrogateescape")).digest()[:4], "big")
    return _LOWEST_PORT + drawn % _PORTS
