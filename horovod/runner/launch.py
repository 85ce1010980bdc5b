"""horovodrun: from a command line to a job."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import horovod
from horovod.runner import build_report, command_line, config_file, hosts, launchers, settings
from horovod.runner import rank as wrapper
from horovod.runner.errors import LaunchError
from horovod.runner.launchers.job import Job, forwarded_variables
from horovod.runner.output import RankOutput
from horovod.runner.supervise import Launch, run, say

USAGE_ERROR = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    given, command = command_line.parse(sys.argv[1:] if arguments is None else arguments)
    if given.get("version"):
        print(horovod.__version__)
        return 0
    if given.get("check_build"):
        print(build_report.report())
        return 0
    try:
        return _launch(given, command)
    except LaunchError as error:
        say(str(error))
        return USAGE_ERROR


def run_commandline() -> int:
    """The console script, under the name that Horovod's has."""
    return main()


def _launch(given: Mapping[str, Any], command: list[str]) -> int:
    from_file, warnings = config_file.load(given["config_file"]) if "config_file" in given else ({}, [])
    values = settings.merged(given, from_file, os.environ)
    for warning in warnings + settings.environment_warnings(os.environ):
        say(f"warning: {warning}")
    if "np" not in values:
        raise LaunchError(f"say how many ranks to start: {command_line.USAGE}")
    if not command:
        raise LaunchError(f"say which command to start: {command_line.USAGE}")
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **settings.rank_environment(values)}
    mpirun = launchers.installed_mpirun()
    flavour = launchers.installed_flavour(mpirun)
    nonce = secrets.token_hex(6)
    with tempfile.TemporaryDirectory(prefix="horovodrun-", ignore_cleanup_errors=True) as session_directory:
        places = Places(mpirun, session_directory, os.getcwd())
        job = job_of(values, command, environment, nonce, places)
        launch = Launch(
            command=launchers.command(job, flavour),
            environment=environment,
            nonce=nonce,
            ranks=job.ranks,
            start_timeout=values["start_timeout"],
            verbose=values.get("verbose", False),
        )
        output = RankOutput(
            job.ranks,
            sys.stdout.buffer,
            sys.stderr.buffer,
            values.get("output_filename"),
            values.get("prefix_timestamp", False),
        )
        return run(launch, output)


@dataclass(frozen=True)
class Places:
    """Where things lie: mpirun, a folder for its session, and the directory that ranks start in."""

    mpirun: str
    session_directory: str
    working_directory: str


def job_of(
    values: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, str],
    nonce: str,
    places: Places,
) -> Job:
    """The job that the options describe. LaunchError where they contradict each other."""
    # -I and -S: the wrapper needs the standard library only, and starts in 20 ms.
    start_rank = (sys.executable, "-I", "-S", wrapper.__file__, nonce, places.working_directory)
    binding = _words(values, "binding_args")
    return Job(
        mpirun=places.mpirun,
        ranks=values["np"],
        hosts=tuple(hosts.chosen(values["np"], values.get("hosts"), values.get("hostfile"))),
        rank_command=(*start_rank, *command),
        variables=forwarded_variables(list(environment)),
        session_directory=places.session_directory,
        network_interfaces=tuple(values.get("network_interfaces", ())),
        ssh_port=values.get("ssh_port"),
        ssh_identity_file=values.get("ssh_identity_file"),
        binding=tuple(binding) if binding else None,
        more_arguments=tuple(_words(values, "mpi_args")),
        fabric=has_fabric(),
    )


def _words(values: Mapping[str, Any], name: str) -> list[str]:
    try:
        return shlex.split(values.get(name, ""))
    except ValueError as error:
        raise LaunchError(f"--{name.replace('_', '-')} {values[name]}: {error}") from None


def has_fabric() -> bool:
    """Whether this machine has InfiniBand, Omni-Path, EFA (all: infiniband) or Slingshot (cxi)."""
    return any(
        any(Path(folder).iterdir())
        for folder in ("/sys/class/infiniband", "/sys/class/cxi")
        if Path(folder).is_dir()
    )
