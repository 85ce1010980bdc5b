"""What a launcher needs to know to start ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.runner.errors import LaunchError
from horovod.runner.hosts import Host, is_local
from horovod.runner.shell import Ssh

# Horovod's own list, and what describes the machine that horovodrun runs on.
_NOT_FORWARDED = ("OLDPWD", "PWD", "SHLVL", "_", "HOSTNAME", "TMPDIR", "_HOROVOD_SECRET_KEY")
_NOT_FORWARDED_BEGINNINGS = ("BASH_FUNC_", "SSH_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "SLURM_")


@dataclass(frozen=True)
class Job:
    """Ranks, hosts in the order they are filled, and what each rank runs (wrapper and user's command).

    `variables` are names that remote ranks get from our environment; values never show in a command line.
    `binding` replaces the arguments that leave ranks unbound; `fabric` says that there is InfiniBand or the
    like, and `tcp` that it is not to be used. Interfaces are names, or networks as 10.0.0.0/8, that connect
    the ranks, and mpirun's daemons; `one_interface` is the name for an mpirun that takes one, unless
    `network_interfaces` name it.
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

    def is_remote(self) -> bool:
        return not all(is_local(host.name) for host in self.hosts)

    def host_list(self) -> str:
        return ",".join(f"{host.name}:{host.slots}" for host in self.hosts)

    def ssh_arguments(self) -> list[str]:
        """As mpirun passes them on. LaunchError for an identity file that it would tear apart."""
        name = self.ssh_identity_file or ""
        if any(character.isspace() or character in "'\"\\" for character in name):
            raise LaunchError(
                f"--ssh-identity-file {name}: mpirun splits ssh's arguments at blanks and knows no quotes; "
                "name a path without them, or put IdentityFile into ~/.ssh/config"
            )
        return Ssh(self.ssh_port, self.ssh_identity_file).arguments()


def forwarded_variables(environment: Sequence[str]) -> tuple[str, ...]:
    """The names that remote ranks are given: all but what belongs to this machine, shell or another job."""
    return tuple(
        name
        for name in sorted(environment)
        if name not in _NOT_FORWARDED
        and not name.startswith(_NOT_FORWARDED_BEGINNINGS)
        and not name.endswith("CUDA_VISIBLE_DEVICES")
    )
