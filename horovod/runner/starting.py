"""The choice of a job's launcher, and the variables that ranks inherit.

Agents start the ranks, unless an MPI's mpirun is required.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common.agent_messages import VARIABLE as AGENT_VARIABLE
from horovod.common.build_info import why_unbuilt
from horovod.common.host_memory import VARIABLE as COMMITS_VARIABLE
from horovod.common.launched import MARK
from horovod.runner import errors, launchers
from horovod.runner.agents.places import PLACE_VARIABLES, WORKER
from horovod.runner.elastic.settings import ElasticSettings, asks_for_elastic, elastic_settings
from horovod.runner.errors import NoMpi
from horovod.runner.script import imports_mpi4py

MPI, TCP = "mpi", "tcp"
_ELASTIC_RESTART = "HOROVOD_ELASTIC_RESTART"
# Horovod's own list, and variables that describe horovodrun's machine.
_NOT_FORWARDED = ("OLDPWD", "PWD", "SHLVL", "_", "HOSTNAME", "TMPDIR", "_HOROVOD_SECRET_KEY")
_NOT_FORWARDED_BEGINNINGS = ("BASH_FUNC_", "SSH_", "OMPI_", "PMIX_", "PRTE_", "PMI_", "HYDRA_", "SLURM_")


@dataclass(frozen=True)
class ByMpirun:
    mpirun: str
    flavour: str
    why: str = ""  # a sentence if mpirun was not the user's choice


def launcher_of(values: Mapping[str, Any]) -> str:
    """Return the launcher that the options name, MPI or TCP; "" for none. LaunchError if they name both."""
    by_flags = {MPI: values.get("use_mpi"), TCP: values.get("use_gloo")}
    named = {values.get("launcher", ""), *(name for name, is_asked in by_flags.items() if is_asked)} - {""}
    if len(named) > 1:
        raise errors.launchers_contradict()
    return "".join(named)


def way_of(values: Mapping[str, Any], command: Sequence[str] = ()) -> ByMpirun | ElasticSettings | None:
    """Return how ranks start: by mpirun, or by agents (an elastic job's settings; None for another job).

    mpirun starts them by option, or for a script that imports mpi4py if there is an MPI. LaunchError if the
    requested launcher is unusable.
    """
    named = launcher_of(values)
    if why := why_unbuilt():
        raise errors.unbuilt(why=why)
    if asks_for_elastic(values):
        if named == MPI:
            raise errors.mpi_not_elastic(option="--launcher mpi")
        return elastic_settings(values)
    if named == MPI:
        return _by_mpirun("")
    script = "" if named == TCP or values.get("ddp") or values.get("np") == 1 else imports_mpi4py(command)
    if not script:
        return None
    try:
        return _by_mpirun(f"mpirun starts the ranks (--launcher mpi), as {script} imports mpi4py")
    except NoMpi:
        return None


def _by_mpirun(why: str) -> ByMpirun:
    mpirun = launchers.installed_mpirun()
    return ByMpirun(mpirun, launchers.installed_flavour(mpirun), why)


def without_agents(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without the variables that agents set for this process, if it is a rank.

    New ranks would take them for theirs. HOROVOD_ELASTIC_RESTART is dropped too: only torchrun's ranks read
    it.
    """
    of_agents = (AGENT_VARIABLE, COMMITS_VARIABLE, *PLACE_VARIABLES)
    names = {MARK, WORKER, _ELASTIC_RESTART, *(of_agents if AGENT_VARIABLE in environment else ())}
    return {name: text for name, text in environment.items() if name not in names}


def forwarded_variables(environment: Iterable[str]) -> tuple[str, ...]:
    """Return the names that remote ranks get: all but those of this machine, this shell or another job."""
    return tuple(
        name
        for name in sorted(environment)
        if name not in _NOT_FORWARDED
        and not name.startswith(_NOT_FORWARDED_BEGINNINGS)
        and not name.endswith("CUDA_VISIBLE_DEVICES")
    )
