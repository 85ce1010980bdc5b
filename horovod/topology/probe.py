"""Detection of a host's hardware: sockets, memory, GPUs and their links, network interfaces."""

from __future__ import annotations

from horovod.topology import interfaces, nvidia, processors
from horovod.topology.facts import Host
from horovod.topology.machine import Machine


def probe(machine: Machine | None = None) -> Host:
    """The facts of a machine, by default of this process' machine."""
    machine = machine or Machine()
    sockets = processors.sockets(machine)
    gpus, links, notes = nvidia.gpus(machine, sockets)
    return Host(
        machine.name,
        sockets,
        processors.memory_bytes(machine),
        processors.usable_cores(machine),
        gpus,
        links,
        interfaces.nics(machine, sockets),
        tuple(notes),
    )
