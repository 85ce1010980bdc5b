"""What a launcher needs to know to start ranks."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.runner import errors
from horovod.runner.hosts import Host, is_local
from horovod.runner.shell import Ssh


@dataclass(frozen=True)
class Job:
    """Ranks, hosts in the order they are filled, and the command of each rank.

    `variables` are names whose values mpirun itself sends to remote ranks, where others can read them; no
    value shows in a command line. `binding` replaces the arguments that leave ranks unbound; `fabric` says
    that there is InfiniBand or the like, and `tcp` that it is not to be used. `network_interfaces` are names,
    or networks as 10.0.0.0/8, that connect the ranks. `memory`: shared memory alone connects the ranks, so
    they listen to nobody. `output_folder`: for what ranks write, "" for none; `timestamps`: before each line.
    """

    mpirun: str
    ranks: int
    hosts: tuple[Host, ...]
    rank_command: tuple[str, ...]
    variables: tuple[str, ...] = ()
    network_interfaces: tuple[str, ...] = ()
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    binding: tuple[str, ...] | None = None
    more_arguments: tuple[str, ...] = ()
    fabric: bool = False
    tcp: bool = False
    memory: bool = False
    output_folder: str = ""
    timestamps: bool = False

    def is_remote(self) -> bool:
        return not all(is_local(host.name) for host in self.hosts)

    def host_list(self) -> str:
        return ",".join(f"{host.name}:{host.slots}" for host in self.hosts)

    def ssh_arguments(self) -> list[str]:
        """As mpirun passes them on. LaunchError for an identity file that it would tear apart."""
        name = self.ssh_identity_file or ""
        if any(character.isspace() or character in "'\"\\" for character in name):
            raise errors.torn_identity_file(path=name)
        return Ssh(self.ssh_port, self.ssh_identity_file).arguments()
