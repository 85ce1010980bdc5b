"""Which variables ranks on other hosts get, and by which way: never a user's through mpirun's own messages.

These messages are neither encrypted nor authenticated, and scripts need tokens. Standard library only: the
agent that starts mpirun's daemons imports it (see `daemon_agent`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# Horovod's own list, and what describes the machine that horovodrun runs on.
_NOT_FORWARDED = ("OLDPWD", "PWD", "SHLVL", "_", "HOSTNAME", "TMPDIR", "_HOROVOD_SECRET_KEY")
_NOT_FORWARDED_BEGINNINGS = ("BASH_FUNC_", "SSH_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "SLURM_")
# Settings of programs that ranks are made of: everybody may read them, unless a name says otherwise.
_OPEN = re.compile(
    r"PATH|PYTHON\w*|LD_LIBRARY_PATH|DYLD_LIBRARY_PATH|LANG|LANGUAGE|LC_\w+|TZ|VIRTUAL_ENV|CONDA_\w+"
    r"|(HOROVOD|NCCL|GLOO|UCX|UCC|FI|OMP|GOMP|KMP|MKL|OPENBLAS|TORCH|TORCHELASTIC|PYTORCH|CUDA|CUBLAS|CUDNN)_\w+"
    r"|MASTER_ADDR|MASTER_PORT|WORLD_SIZE|ROLE_\w+|GROUP_WORLD_SIZE"
)
_SECRET = re.compile(r"TOKEN|SECRET|KEY|PASS|CREDENTIAL|AUTH|COOKIE", re.IGNORECASE)
# Every host has its own of these, and no job misses them.
_OF_A_LOGIN = re.compile(
    r"HOME|USER|LOGNAME|SHELL|MAIL|TERM\w*|COLORTERM|LS_COLORS|LESS\w*|PAGER|EDITOR|VISUAL|DISPLAY|PS\d"
    r"|HIST\w+|XDG_\w+|DBUS_\w+|DEBIAN_FRONTEND"
)


@dataclass(frozen=True)
class Forwarding:
    """`open`: names that mpirun sends itself, where everybody on the way can read their values.

    `withheld`: what other hosts are not given, and `why`.
    """

    open: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()
    why: str = ""

    def warning(self) -> str:
        """What to say of it; "" where nothing is withheld."""
        if not self.withheld:
            return ""
        flags = " ".join(f"-x {name}" for name in self.withheld)
        return (
            f"ranks on other hosts do not get {', '.join(self.withheld)}, as {self.why}, and what mpirun "
            "sends itself can be read on the network. Where that does not matter, name those that the ranks "
            "need: "
            f'--mpi-args="{flags}"'
        )


def forwarded_variables(environment: Iterable[str]) -> tuple[str, ...]:
    """The names that remote ranks are given: all but what belongs to this machine, shell or another job."""
    return tuple(
        name
        for name in sorted(environment)
        if name not in _NOT_FORWARDED
        and not name.startswith(_NOT_FORWARDED_BEGINNINGS)
        and not name.endswith("CUDA_VISIBLE_DEVICES")
    )


def through_srun(environment: Mapping[str, str], arguments: Sequence[str]) -> Forwarding:
    """srun passes its environment on to mpirun's daemons, and they to ranks, unless it is told not to."""
    exported = environment.get("SLURM_EXPORT_ENV", "ALL").split(",")
    if "ALL" in exported:
        return Forwarding()
    names = {word.partition("=")[0] for word in exported}
    others = [name for name in environment if name not in names]
    return through_nothing(others, arguments, "SLURM_EXPORT_ENV keeps srun from passing them on")


def through_nothing(environment: Iterable[str], arguments: Sequence[str], why: str) -> Forwarding:
    """Where only mpirun's own messages reach the other hosts. `arguments`: those of the user for mpirun."""
    asked = {name.partition("=")[0] for flag, name in pairwise(arguments) if flag == "-x"}
    names = [name for name in forwarded_variables(environment) if name not in asked]
    sent = tuple(name for name in names if _OPEN.fullmatch(name) and not _SECRET.search(name))
    withheld = tuple(n for n in names if n not in sent and not _OF_A_LOGIN.fullmatch(n))
    return Forwarding(sent, withheld, why)


def warning_of_exposure(environment: Iterable[str], mpi: str) -> str:
    """For an MPI whose mpirun sends other hosts all that it has; "" where no name tells of a secret."""
    secrets = [name for name in forwarded_variables(environment) if _SECRET.search(name)]
    if not secrets:
        return ""
    return (
        f"mpirun of {mpi} sends the whole environment to the other hosts, and it can be read on the network, "
        f"{', '.join(secrets)} too; unset what the ranks do not need, or use Open MPI, which is given it "
        "through ssh"
    )
