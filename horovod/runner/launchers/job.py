"""What a launcher needs to know to start ranks."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.runner import errors
from horovod.runner.daemon_agent import END_OF_OPTIONS
from horovod.runner.hosts import Host, is_local
from horovod.runner.shell import Ssh


@dataclass(frozen=True)
class Job:
    """Ranks, hosts in the order they are filled, and what each rank runs (wrapper and user's command).

    `variables` are names whose values mpirun itself sends to remote ranks, where others can read them; no
    value shows in a command line. `agent` starts its daemons on other hosts in the place of ssh.
    `binding` replaces the arguments that leave ranks unbound; `fabric` says that there is InfiniBand or the
    like, and `tcp` that it is not to be used. Interfaces are names, or networks as 10.0.0.0/8, that connect
    the ranks, and mpirun's daemons; `one_interface` is the name for an mpirun that takes one, unless
    `network_interfaces` name it. `memory`: shared memory alone connects the ranks, so they listen to nobody.
    """

    mpirun: str
    ranks: int
    hosts: tuple[Host, ...]
    rank_command: tuple[str, ...]
    variables: tuple[str, ...] = ()
    session_directory: str = ""
    network_interfaces: tuple[str, ...] = ()
    daemon_interfaces: tuple[str, ...] = ()
    one_interface: str = ""
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    binding: tuple[str, ...] | None = None
    more_arguments: tuple[str, ...] = ()
    fabric: bool = False
    tcp: bool = False
    agent: tuple[str, ...] = ()
    memory: bool = False

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

    def end_of_ssh_options(self) -> list[str]:
        """The word before the host, by which the agent tells ssh's options from it."""
        return [END_OF_OPTIONS] if self.agent else []
