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
    words += ["--tag-output", *(["--timestamp-output"] if job.timestamps else [])]
    words += ["--output-filename", job.output_folder] if job.output_folder else []
    if job.is_remote():
        words += _remote_options(job)
    return words


def _remote_options(job: Job) -> list[str]:
    words = ["--mca", "plm_rsh_args", " ".join(job.ssh_arguments())]
    for name, value in (("time", 2), ("intvl", 1), ("probes", 3)):
        words += ["--mca", f"oob_tcp_keepalive_{name}", str(value)]
    if job.network_interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.network_interfaces)]
    if len(job.hosts) >= MANY_HOSTS:
        words += ["--mca", "plm_rsh_no_tree_spawn", "true"]
        words += ["--mca", "plm_rsh_num_concurrent", str(len(job.hosts))]
    for name in job.variables:
        words += ["-x", name]
    return words
