"""What each rank of `horovodrun --topology` tells."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from horovod import _native as native
from horovod.common.basics import basics
from horovod.topology.facts import Host, Links
from horovod.topology.probe import probe
from horovod.topology.routes import links_of


@dataclass(frozen=True)
class Told:
    """By one rank. The first of each host describes it."""

    host_name: str
    host: Host | None
    transport: str
    links: Links
    algorithm: str
    is_deterministic: bool
    shares_windows: bool  # unless --transport mpi rules them out


def tell() -> Told:
    """Joins the job, so that its links are measured, and looks at the host."""
    basics.init()
    try:
        world = basics.running().world
        settings = native.Settings.from_environment()
        return Told(
            socket.gethostname(),
            probe() if world.local_rank == 0 else None,
            world.transport,
            links_of(world.links, is_measured=world.size > 1 and not settings.deterministic),
            settings.allreduce_algorithm,
            settings.deterministic,
            settings.transport != "mpi",
        )
    finally:
        basics.shutdown()
