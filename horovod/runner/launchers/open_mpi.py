"""Open MPI 5 (PRRTE). Each setting was measured; "1 s" and the like are MPI_Init or a 100 MB allreduce."""

from __future__ import annotations

from horovod.runner.launchers.job import Job

MANY_HOSTS = 64


def options(job: Job) -> list[str]:
    words = ["--allow-run-as-root", "-np", str(job.ranks), "-H", job.host_list()]
    # Unbound, as ranks bring threads of their own, and in containers several "hosts" would bind to the same
    # core.
    words += job.binding if job.binding is not None else ("--bind-to", "none", "--map-by", "slot")
    if job.tcp or not job.fabric:
        # 0.01 s instead of 1.02 s: the ofi component looks for fabrics for a second.
        btl = "self,sm" if job.memory else "self,sm,tcp"
        words += ["--mca", "pml", "ob1", "--mca", "btl", btl]
        # The ucx component for shared windows complains on stderr where it finds no device of its own.
        words += ["--mca", "osc", "^ucx"]
    words += ["--output", ",".join(_output(job))]
    if job.is_remote():
        words += _remote_options(job)
    return words


def _output(job: Job) -> list[str]:
    """Lines begin with the rank; with a folder, they are written there too, as they are."""
    words = ["tag", *(["timestamp"] if job.timestamps else [])]
    return [*words, f"dir={job.output_folder}"] if job.output_folder else words


def _remote_options(job: Job) -> list[str]:
    words = ["--prtemca", "plm_ssh_args", " ".join(job.ssh_arguments())]
    # A host that falls silent is noticed in 4 s instead of 8 minutes.
    for name, value in (("time", 2), ("intvl", 1), ("probes", 3)):
        words += ["--prtemca", f"oob_tcp_keepalive_{name}", str(value)]
    if all(host.slots == 1 for host in job.hosts):
        words += ["--mca", "btl_tcp_links", "2"]  # one rank per host: 0.86 s instead of 0.85 to 1.3 s
    if job.network_interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.network_interfaces)]
    if len(job.hosts) >= MANY_HOSTS:
        words += ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
        words += ["--prtemca", "plm_ssh_num_concurrent", str(len(job.hosts))]
    for name in job.variables:
        words += ["-x", name]
    return words
