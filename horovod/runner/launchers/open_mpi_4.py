"""Open MPI 4 (ORTE), and IBM's Spectrum MPI, which is made from it: other names for what `open_mpi` sets."""

from __future__ import annotations

from horovod.runner.launchers.job import Job
from horovod.runner.launchers.open_mpi import MANY_HOSTS

_UNBOUND = ("--bind-to", "none", "--map-by", "slot")
_SPECTRUM_BINDING = ("-bind-to", "socket", "-map-by", "socket", "-rank-by", "core")


def options(job: Job) -> list[str]:
    words = _common_options(job, _UNBOUND)
    if job.tcp or not job.fabric:
        btl = "self,vader" if job.memory else "self,vader,tcp"
        words += ["--mca", "pml", "ob1", "--mca", "btl", btl]
    return words


def spectrum_options(job: Job) -> list[str]:
    """Spectrum MPI brings its own transport (PAMI), so none is chosen."""
    return _common_options(job, _SPECTRUM_BINDING) + (["-tcp"] if job.tcp else [])


def _common_options(job: Job, binding: tuple[str, ...]) -> list[str]:
    words = ["--allow-run-as-root", "-np", str(job.ranks), "-H", job.host_list()]
    words += job.binding if job.binding is not None else binding
    # mpirun tells ranks of the folder by this name. They would hear of orte_local_tmpdir_base too,
    # which is for this host alone, and refuse to have both. Other hosts lack the folder.
    if job.session_directory and not job.is_remote():
        words += ["--mca", "orte_tmpdir_base", job.session_directory]
    if job.is_remote():
        words += _remote_options(job)
    return words


def _remote_options(job: Job) -> list[str]:
    words = ["--mca", "plm_rsh_args", " ".join([*job.ssh_arguments(), *job.end_of_ssh_options()])]
    if job.agent:
        words += ["--mca", "plm_rsh_agent", " ".join(job.agent)]
    for name, value in (("time", 2), ("intvl", 1), ("probes", 3)):
        words += ["--mca", f"oob_tcp_keepalive_{name}", str(value)]
    if job.network_interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.network_interfaces)]
    if job.daemon_interfaces:
        words += ["--mca", "oob_tcp_if_include", ",".join(job.daemon_interfaces)]
    if job.agent or len(job.hosts) >= MANY_HOSTS:
        words += ["--mca", "plm_rsh_no_tree_spawn", "true"]
    if len(job.hosts) >= MANY_HOSTS:
        words += ["--mca", "plm_rsh_num_concurrent", str(len(job.hosts))]
    for name in job.variables:
        words += ["-x", name]
    return words
