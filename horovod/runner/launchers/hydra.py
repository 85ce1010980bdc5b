"""MPICH and Intel MPI, whose mpirun is Hydra. Ranks get our whole environment by themselves."""

from __future__ import annotations

from horovod.runner import errors
from horovod.runner.launchers.job import Job


def mpich_options(job: Job) -> list[str]:
    _check_tcp(job)
    words = ["-np", str(job.ranks), *(job.binding or ()), *_output(job)]
    if job.is_remote():
        if job.ssh_port is not None or job.ssh_identity_file is not None:
            raise errors.mpich_takes_no_ssh()
        words += ["-hosts", job.host_list(), *_interface(job)]
    return words


def intel_options(job: Job) -> list[str]:
    _check_tcp(job)
    words = ["-np", str(job.ranks), *(job.binding or ()), *_output(job)]
    if job.is_remote():
        slots = {host.slots for host in job.hosts}
        if len(slots) > 1:
            raise errors.uneven_hosts(hosts=job.host_list())
        words += ["-ppn", str(slots.pop()), "-hosts", ",".join(host.name for host in job.hosts)]
        words += ["-bootstrap=ssh", "-bootstrap-exec-args", " ".join(job.ssh_arguments()), *_interface(job)]
    return words


def _interface(job: Job) -> list[str]:
    if len(job.network_interfaces) > 1:
        raise errors.one_interface(interfaces=list(job.network_interfaces))
    return [word for name in job.network_interfaces for word in ("-iface", name)]


def _output(job: Job) -> list[str]:
    """Lines begin with the rank; a folder gets them too."""
    if job.timestamps:
        raise errors.no_timestamps()
    folder = job.output_folder
    files = ["-outfile-pattern", f"{folder}/rank.%r.stdout", "-errfile-pattern", f"{folder}/rank.%r.stderr"]
    return ["-prepend-rank", *(files if folder else [])]


def _check_tcp(job: Job) -> None:
    if job.tcp:
        raise errors.no_tcp_option()
