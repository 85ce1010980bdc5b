"""Which variables ranks on other hosts get, and by which way: no secret through mpirun's own messages.

These messages are neither encrypted nor authenticated, and scripts need tokens. Agents get variables through
the channel of ssh, or srun.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
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
# Their mpirun gives ranks its whole environment by its own messages.
SENDING_EVERYTHING = ("MPICH", "Intel MPI")
# Every host has its own of these, and no job misses them.
_OF_A_LOGIN = re.compile(
    r"HOME|USER|LOGNAME|SHELL|MAIL|TERM\w*|COLORTERM|LS_COLORS|LESS\w*|PAGER|EDITOR|VISUAL|DISPLAY|PS\d"
    r"|HIST\w+|XDG_\w+|DBUS_\w+|DEBIAN_FRONTEND"
)


@dataclass(frozen=True)
class Forwarding:
    """`open`: names that mpirun sends itself, where everybody on the way can read their values.

    `withheld`: those that other hosts are not given.
    """

    open: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


def forwarded_variables(environment: Iterable[str]) -> tuple[str, ...]:
    """The names that remote ranks are given: all but what belongs to this machine, shell or another job."""
    return tuple(
        name
        for name in sorted(environment)
        if name not in _NOT_FORWARDED
        and not name.startswith(_NOT_FORWARDED_BEGINNINGS)
        and not name.endswith("CUDA_VISIBLE_DEVICES")
    )


def sent_by_mpirun(environment: Iterable[str], arguments: Sequence[str]) -> Forwarding:
    """What mpirun is to send to other hosts. `arguments`: those of the user for mpirun."""
    asked = {name.partition("=")[0] for flag, name in pairwise(arguments) if flag == "-x"}
    names = [name for name in forwarded_variables(environment) if name not in asked]
    sent = tuple(name for name in names if _OPEN.fullmatch(name) and not _SECRET.search(name))
    withheld = tuple(n for n in names if n not in sent and not _OF_A_LOGIN.fullmatch(n))
    return Forwarding(sent, withheld)


def warnings_of_mpirun(
    environment: Iterable[str], mpi: str, arguments: Sequence[str], is_remote: bool
) -> list[str]:
    """What mpirun neither hides nor narrows, where ranks are on other hosts."""
    if not is_remote:
        return []
    said = [f"mpirun of {mpi}, its daemons and its ranks listen on all networks of their hosts"]
    if mpi in SENDING_EVERYTHING:
        return [*said, *filter(None, [_exposure(environment, mpi)])]
    if withheld := sent_by_mpirun(environment, arguments).withheld:
        flags = " ".join(f"-x {name}" for name in withheld)
        said.append(
            f"ranks on other hosts do not get {', '.join(withheld)}, as what mpirun sends can be read on the "
            f'network. Where that does not matter, name those that the ranks need: --mpi-args="{flags}"'
        )
    return said


def _exposure(environment: Iterable[str], mpi: str) -> str:
    """For an MPI whose mpirun sends other hosts all that it has; "" where no name tells of a secret."""
    secrets = [name for name in forwarded_variables(environment) if _SECRET.search(name)]
    if not secrets:
        return ""
    return (
        f"mpirun of {mpi} sends the whole environment to the other hosts, and it can be read on the network, "
        f"{', '.join(secrets)} too; unset what the ranks do not need, or use Open MPI, or leave out "
        "--launcher mpi: agents are given it through ssh"
    )
