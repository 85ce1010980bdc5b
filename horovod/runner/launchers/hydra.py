"""MPICH and Intel MPI, whose mpirun is Hydra. Ranks get our whole environment by themselves."""

from __future__ import annotations

from horovod.runner.errors import LaunchError
from horovod.runner.launchers.job import Job


def mpich_options(job: Job) -> list[str]:
    _check_tcp(job)
    words = ["-np", str(job.ranks), *(job.binding or ())]
    if job.is_remote():
        if job.ssh_port is not None or job.ssh_identity_file is not None:
            raise LaunchError(
                "MPICH's mpirun passes nothing on to ssh: put Port and IdentityFile into ~/.ssh/config "
                "instead of using "
                "--ssh-port and --ssh-identity-file"
            )
        words += ["-hosts", job.host_list(), *_interface(job)]
    return words


def intel_options(job: Job) -> list[str]:
    _check_tcp(job)
    words = ["-np", str(job.ranks), *(job.binding or ())]
    if job.is_remote():
        slots = {host.slots for host in job.hosts}
        if len(slots) > 1:
            raise LaunchError(
                f"Intel MPI needs as many ranks on every host, and these differ: {job.host_list()}; change "
                "--hosts or -np"
            )
        words += ["-ppn", str(slots.pop()), "-hosts", ",".join(host.name for host in job.hosts)]
        words += ["-bootstrap=ssh", "-bootstrap-exec-args", " ".join(job.ssh_arguments()), *_interface(job)]
    return words


def _interface(job: Job) -> list[str]:
    if len(job.network_interfaces) > 1:
        raise LaunchError(
            f"this mpirun takes one network interface, not {','.join(job.network_interfaces)}; name one of "
            "them"
        )
    names = job.network_interfaces or ((job.one_interface,) if job.one_interface else ())
    return [word for name in names for word in ("-iface", name)]


def _check_tcp(job: Job) -> None:
    if job.tcp:
        raise LaunchError(
            "--tcp: this mpirun has no option for it; set UCX_TLS=tcp or FI_PROVIDER=tcp instead"
        )
