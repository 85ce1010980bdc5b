"""How a command is run on another host: over ssh, or in a Slurm job by srun."""

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
    """BatchMode: a question about a password or an unknown host key is an error, no hanging job."""

    port: int | None = None
    identity_file: str | None = None

    def arguments(self) -> list[str]:
        words = ["-o", "BatchMode=yes", "-o", f"ConnectTimeout={time_limits.SSH_CONNECT}"]
        if self.port is not None:
            words += ["-p", str(self.port)]
        return words if self.identity_file is None else [*words, "-i", self.identity_file]

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        """A command that runs the words on the host, whatever shell the user has there."""
        return ["ssh", *self.arguments(), "--", host, shlex.join(words)]

    def __str__(self) -> str:
        return f"ssh port {self.port or 22}"


@dataclass(frozen=True)
class Srun:
    """In a Slurm job mpirun starts its daemons with srun, and hosts may know no ssh."""

    port: int | None = None

    def command(self, host: str, words: Sequence[str]) -> list[str]:
        one_task = ["--nodes=1", "--ntasks=1", "--overlap", "--mpi=none", "--quiet"]
        return ["srun", *one_task, f"--nodelist={host}", *words]

    def __str__(self) -> str:
        return "srun"


Shell = Ssh | Srun


def shell_for(values: Mapping[str, Any], environment: Mapping[str, str]) -> Shell:
    """srun inside of a Slurm job that has it; ssh otherwise. LaunchError when neither is installed."""
    if "SLURM_JOB_ID" in environment and shutil.which("srun", path=environment.get("PATH")):
        return Srun(values.get("ssh_port"))
    if not shutil.which("ssh", path=environment.get("PATH")):
        raise errors.no_ssh()
    return Ssh(values.get("ssh_port"), values.get("ssh_identity_file"))
