"""Running a command on another host: by ssh, or by srun in a Slurm job."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from horovod.common import time_limits
from horovod.runner import errors


@dataclass(frozen=True)
class Ssh:
    """BatchMode turns questions about passwords and host keys into errors, so that no job hangs."""

    port: int | None = None
    identity_file: str | None = None

    def arguments(self) -> list[str]:
        words = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={time_limits.SSH_CONNECT}"]
        if self.port is not None:
            words += ["-p", str(self.port)]
        return words if self.identity_file is None else [*words, "-i", self.identity_file]

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """Return a command that runs the words on the host, whichever shell the user has there."""
        return ["ssh", *self.arguments(), "--", host, shlex.join(words)]

    def __str__(self) -> str:
        return f"ssh port {self.port or 22}"


@dataclass(frozen=True)
class Srun:
    """srun, by which mpirun too starts its daemons in a Slurm job, whose hosts may have no ssh server."""

    port: int | None = None

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        one_task = ["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--quiet"]
        return ["srun", *one_task, f"--nodelist={host}", *words]

    def __str__(self) -> str:
        return "srun"


Shell = Ssh | Srun


def shell_for(values: Mapping[str, Any], environment: Mapping[str, str]) -> Shell:
    """Return srun inside a Slurm job that has it, ssh otherwise. LaunchError if neither is installed."""
    if "SLURM_JOB_ID" in environment and shutil.which("srun", path=environment.get("PATH")):
        return Srun(values.get("ssh_port"))
    if not shutil.which("ssh", path=environment.get("PATH")):
        raise errors.no_ssh()
    return Ssh(values.get("ssh_port"), values.get("ssh_identity_file"))
