"""The mpirun command line of each MPI: pure functions of a job."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from horovod.common.build_info import ANY, build_info, why_unbuilt
from horovod.common.mpi_here import family_of, folders, mpi_here, version_text
from horovod.runner import errors
from horovod.runner.hosts import Host, is_local
from horovod.runner.shell import Ssh

MANY_HOSTS = 64
# Not bound: ranks start threads, and in containers several "hosts" would bind to the same core.
_UNBOUND = ("--bind-to", "none", "--map-by", "slot")
_SPECTRUM_BINDING = ("-bind-to", "socket", "-map-by", "socket", "-rank-by", "core")


@dataclass(frozen=True)
class Job:
    """Ranks, hosts in the order in which they are filled, and the command of each rank."""

    mpirun: str
    ranks: int
    hosts: tuple[Host, ...]
    rank_command: tuple[str, ...]
    # Names whose values mpirun itself sends to remote ranks, where others can read them; no value appears in
    # a command line.
    variables: tuple[str, ...] = ()
    network_interfaces: tuple[str, ...] = ()  # names, or networks as 10.0.0.0/8, that connect the ranks
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    binding: tuple[str, ...] | None = None  # replaces the arguments that leave ranks unbound
    more_arguments: tuple[str, ...] = ()
    fabric: bool = False  # the host has InfiniBand or the like
    tcp: bool = False  # a fabric is not to be used
    memory: bool = False  # only shared memory connects the ranks, so they open no listening socket
    output_folder: str = ""  # for the ranks' output; "" for none
    timestamps: bool = False  # one before each line of output

    def is_remote(self) -> bool:
        return not all(is_local(host.name) for host in self.hosts)

    def host_list(self) -> str:
        return ",".join(f"{host.name}:{host.slots}" for host in self.hosts)

    def ssh_arguments(self) -> list[str]:
        """ssh's arguments as mpirun passes them on. LaunchError for a file name that mpirun would split."""
        name = self.ssh_identity_file or ""
        if any(character.isspace() or character in "'\"\\" for character in name):
            raise errors.torn_identity_file(path=name)
        return Ssh(self.ssh_port, self.ssh_identity_file).arguments()


# Open MPI. Each setting was measured; times such as "1 s" are of MPI_Init or a 100 MB allreduce.


def _open_mpi_5(job: Job) -> list[str]:
    """With PRRTE. Lines begin with the rank; an output folder, if given, gets them too."""
    words = _of_open_mpi(job, _UNBOUND) + _bytes_of_open_mpi(job, "sm")
    if job.tcp or not job.fabric:
        # The ucx component for shared windows prints an error if it finds no device.
        words += ["--mca", "osc", "^ucx"]
    output = ["tag", *(["timestamp"] if job.timestamps else [])]
    output += [f"dir={job.output_folder}"] if job.output_folder else []
    words += ["--output", ",".join(output)]
    if job.is_remote() and all(host.slots == 1 for host in job.hosts):
        words += ["--mca", "btl_tcp_links", "2"]  # one rank per host: 0.86 s instead of 0.85 to 1.3 s
    return words + _remote_of_open_mpi(job, "--prtemca", "plm_ssh", "1")


def _open_mpi_4(job: Job) -> list[str]:
    """With ORTE, whose options have other names than PRRTE's."""
    return _like_open_mpi_4(job, _UNBOUND) + _bytes_of_open_mpi(job, "vader")


def _spectrum(job: Job) -> list[str]:
    """IBM's MPI, derived from Open MPI 4. It has its own transport (PAMI), so none is selected here."""
    return _like_open_mpi_4(job, _SPECTRUM_BINDING) + (["-tcp"] if job.tcp else [])


def _like_open_mpi_4(job: Job, binding: tuple[str, ...]) -> list[str]:
    words = _of_open_mpi(job, binding)
    words += ["--tag-output", *(["--timestamp-output"] if job.timestamps else [])]
    words += ["--output-filename", job.output_folder] if job.output_folder else []
    return words + _remote_of_open_mpi(job, "--mca", "plm_rsh", "true")


def _of_open_mpi(job: Job, binding: tuple[str, ...]) -> list[str]:
    words = ["--allow-run-as-root", "-np", str(job.ranks), "-H", job.host_list()]
    return [*words, *(job.binding if job.binding is not None else binding)]


def _bytes_of_open_mpi(job: Job, memory: str) -> list[str]:
    """Over TCP and shared memory: 0.01 s instead of 1.02 s, in which the ofi component looks for fabrics."""
    btl = f"self,{memory}" if job.memory else f"self,{memory},tcp"
    return ["--mca", "pml", "ob1", "--mca", "btl", btl] if job.tcp or not job.fabric else []


def _remote_of_open_mpi(job: Job, flag: str, by_ssh: str, yes: str) -> list[str]:
    if not job.is_remote():
        return []
    words = [flag, f"{by_ssh}_args", " ".join(job.ssh_arguments())]
    # Detect a silent host in 4 s instead of 8 minutes.
    for name, value in (("time", 2), ("intvl", 1), ("probes", 3)):
        words += [flag, f"oob_tcp_keepalive_{name}", str(value)]
    if job.network_interfaces:
        words += ["--mca", "btl_tcp_if_include", ",".join(job.network_interfaces)]
    if len(job.hosts) >= MANY_HOSTS:
        words += [flag, f"{by_ssh}_no_tree_spawn", yes, flag, f"{by_ssh}_num_concurrent", str(len(job.hosts))]
    return [*words, *(word for name in job.variables for word in ("-x", name))]


# MPICH and Intel MPI, whose mpirun is Hydra, which gives ranks the whole environment.


def _mpich(job: Job) -> list[str]:
    words = _hydra(job)
    if job.is_remote():
        if job.ssh_port is not None or job.ssh_identity_file is not None:
            raise errors.mpich_takes_no_ssh()
        words += ["-hosts", job.host_list(), *_interface(job)]
    return words


def _intel(job: Job) -> list[str]:
    words = _hydra(job)
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


def _hydra(job: Job) -> list[str]:
    """Lines begin with the rank; an output folder gets them too."""
    if job.tcp:
        raise errors.no_tcp_option()
    if job.timestamps:
        raise errors.no_timestamps()
    folder = job.output_folder
    files = ["-outfile-pattern", f"{folder}/rank.%r.stdout", "-errfile-pattern", f"{folder}/rank.%r.stderr"]
    return ["-np", str(job.ranks), *(job.binding or ()), "-prepend-rank", *(files if folder else [])]


# Name of the flavour -> its mpirun's options, without the command.
FLAVOURS: dict[str, Callable[[Job], list[str]]] = {
    "Open MPI 5": _open_mpi_5,
    "Open MPI 4": _open_mpi_4,
    "Spectrum MPI": _spectrum,
    "MPICH": _mpich,
    "Intel MPI": _intel,
}


def command(job: Job, flavour: str) -> list[str]:
    """Return the command line that starts the job. LaunchError if this MPI cannot start it."""
    return [job.mpirun, *FLAVOURS[flavour](job), *job.more_arguments, *job.rank_command]


def flavour_of(version_text: str) -> str:
    """Return the flavour that `mpirun --version` shows; "" for an unknown one."""
    if "Spectrum MPI" in version_text:
        return "Spectrum MPI"
    if "Open MPI" in version_text or "OpenRTE" in version_text:
        number = version_text.replace("(", " ").replace(")", " ").split()
        majors = [int(word.partition(".")[0]) for word in number if word[:1].isdigit() and "." in word]
        return "Open MPI 5" if majors and majors[0] >= 5 else "Open MPI 4"
    if "Intel(R) MPI" in version_text:
        return "Intel MPI"
    return "MPICH" if "HYDRA" in version_text.upper() or "MPICH" in version_text else ""


def installed_mpirun() -> str:
    """Return the mpirun of the MPI that this installation uses: one job must not mix two."""
    if why := why_unbuilt():
        raise errors.unbuilt(why=why)
    recorded = build_info().mpi
    mpi = mpi_here(recorded)
    if not mpi.built and recorded.source == ANY:
        raise errors.no_mpi(folders=list(map(str, folders())))
    if not mpi.built:
        raise errors.built_without_mpi()
    path = mpi.mpirun_path()
    if recorded.source == ANY and not os.access(path, os.X_OK):
        raise errors.mpirun_not_on_path(library=mpi.library)
    if recorded.source == ANY and (family := family_of(version_text(path))) not in ("", mpi.name):
        raise errors.mpirun_of_another(path=path, got=family, expected=mpi.name, library=mpi.library)
    if not os.access(path, os.X_OK):
        raise errors.mpirun_missing(path=path, mpi=f"{mpi.name} {mpi.version}")
    return path


def installed_flavour(mpirun: str) -> str:
    said = version_text(mpirun)
    flavour = flavour_of(said)
    if not flavour:
        raise errors.mpirun_unknown(path=mpirun, known=list(FLAVOURS), said=said.strip() or "nothing")
    return flavour
