"""horovodrun: from a command line to a job."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn

import horovod
from horovod.common.networks import Choice
from horovod.runner import (
    closing,
    command_line,
    config_file,
    mistakes,
    payload_transfer,
    rendezvous,
    settings,
    slurm,
    starting,
)
from horovod.runner.elastic.settings import refuse_alone
from horovod.runner.errors import LaunchError
from horovod.runner.host_cache import HostCache, default_folder
from horovod.runner.job_hosts import (
    JobHosts,
    Run,
    listening_environment,
    nccl_environment,
)
from horovod.runner.output import RankOutput
from horovod.runner.payload import fresh_name
from horovod.runner.rank import BIND_VARIABLE, PAYLOAD_VARIABLE
from horovod.runner.streams import discard, open_closed_ones, say
from horovod.runner.supervise import OUTPUT_CLOSED, OUTPUT_FAILED, Ending, Launch, run

USAGE_ERROR = 2
_TOPOLOGY = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from horovod.topology.__main__ import main; sys.exit(main())"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; returns the exit code."""
    if not open_closed_ones():
        say("standard output is closed, and ranks' output would go nowhere; redirect it (to /dev/null, say)")
        return USAGE_ERROR
    try:
        try:
            return _main(arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:  # of our own few words; what ranks say is guarded elsewhere
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return OUTPUT_CLOSED
        say(f"standard output cannot be written: {error.strerror}")
        return OUTPUT_FAILED


def _main(arguments: Sequence[str] | None) -> int:
    given, command = command_line.parse(sys.argv[1:] if arguments is None else arguments)
    if given.get("version"):
        print(horovod.__version__)
        return 0
    if given.get("check_build"):
        from horovod.runner import build_report  # here, as jobs do without it

        return build_report.check_build()
    if "print_completion" in given:
        return _completion(given["print_completion"])
    if given.get("topology"):
        _become_topology(sys.argv[1:] if arguments is None else arguments)
    try:
        if given.get("tune_launch"):
            from horovod.runner import tune_launch

            words = list(sys.argv[1:] if arguments is None else arguments)
            return tune_launch.main(words, len(command), *_options(given, command))
        ending = _launch(given, command)
    except LaunchError as error:
        say(str(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        say("stopped by SIGINT before any rank started")
        return 130
    if ending.message:
        say(ending.message)
    return ending.code


def _completion(shell: str) -> int:
    try:
        print(command_line.completion(shell))
    except LaunchError as error:
        say(str(error))
        return USAGE_ERROR
    return 0


def run_commandline() -> int:
    """The console script, under the name that Horovod's has."""
    return main()


def _become_topology(arguments: Sequence[str]) -> NoReturn:
    """It asks the native core about routes, which the launcher does not load; so it is another program."""
    words = [sys.executable, "-c", _TOPOLOGY, json.dumps(sys.path), *arguments]
    sys.stdout.flush()
    os.execv(sys.executable, words)


def _options(given: Mapping[str, Any], command: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the command line and the config file say, and what holds with the environment; says warnings.
    LaunchError for what makes no sense.
    """
    from_file, warnings = config_file.load(given["config_file"]) if "config_file" in given else ({}, [])
    values = settings.merged(given, from_file, os.environ)
    warnings += settings.environment_warnings(os.environ)
    for warning in [*warnings, *mistakes.variable_warnings(os.environ), *mistakes.command_warnings(command)]:
        say(f"warning: {warning}")
    mistakes.refuse_without_other(given)
    rendezvous.refuse_without_ddp(given, values)
    refuse_alone(given, values)
    knows_ranks = bool(values.get("np") or slurm.allocation(os.environ))
    mistakes.check_command(command, command_line.FLAGS, knows_ranks)
    misread = mistakes.compression_warnings(values, os.environ, command)
    for warning in misread + mistakes.ddp_warnings(values, command):
        say(f"warning: {warning}")
    return {**from_file, **given}, values


def _launch(given: Mapping[str, Any], command: list[str]) -> Ending:
    _, values = _options(given, command)
    return start(values, command, os.environ)


def start(
    values: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, str],
    payload: bytes | None = None,
) -> Ending:
    """Run a job with the options `values` (as `settings.merged` makes them) to its end.

    With a payload, its ranks find it under the name in PAYLOAD_VARIABLE. LaunchError when nothing can start.
    """
    way = starting.way_of(values)
    values = {**values, "launcher": way.launcher}
    job_hosts = way.hosts(values, environment)
    prepared = job_hosts.prepare(values)
    job_hosts = job_hosts.without(prepared.missing)
    for text in prepared.warnings:
        say(f"warning: {text}")
    choice = prepared.choice
    environment = _rank_environment(way, values, job_hosts, choice, environment)
    nonce = secrets.token_hex(6)
    why = ""
    if values.get("ddp"):
        meeting = rendezvous.of(values, job_hosts, prepared)
        environment |= meeting.variables(nonce)
        command = [*meeting.start_words(), *command]
        if why := rendezvous.compression_warning(environment):
            say(f"warning: {why}")
    if job_hosts.others() and (warning := way.warning(job_hosts, values, environment)):
        say(f"warning: {warning}")
    output = RankOutput(
        job_hosts.ranks,
        sys.stdout.buffer,
        sys.stderr.buffer,
        values.get("output_filename"),
        values.get("prefix_timestamp", False),
    )
    with ExitStack() as stack:
        spare: frozenset[int] = frozenset()
        if payload is not None:
            environment[PAYLOAD_VARIABLE] = name = fresh_name()
            others = [] if way.most_ranks is not None else job_hosts.others()  # else a driver sends it
            there = payload_transfer.transferred(name, payload, others, job_hosts.shell)
            spare = stack.enter_context(there)
        this_run = Run("", stack.enter_context(way.session()), os.getcwd(), nonce)
        launch = Launch(
            command=way.command(values, job_hosts, choice, command, environment, this_run),
            environment=environment,
            nonce=nonce,
            ranks=way.most_ranks or job_hosts.ranks,
            is_elastic=way.most_ranks is not None,
            start_timeout=values["start_timeout"],
            exit_timeout=values["exit_timeout"],
            closing=closing.of(values, environment, is_explained=bool(why)),
            verbose=values.get("verbose", False),
            spare=spare,
            networks=way.networks(environment),
            starter=way.starter,
        )
        ending = run(launch, output)
    for line in launch.closing.lines() if ending.code == 0 else []:
        say(line)
    if ending.code != 0 or not ending.all_started:  # perhaps because of what has changed there
        HostCache(default_folder()).forget(prepared.cache_keys)
    return ending


def _rank_environment(
    way: starting.Way,
    values: Mapping[str, Any],
    job_hosts: JobHosts,
    choice: Choice,
    environment: Mapping[str, str],
) -> dict[str, str]:
    """What all ranks of a job are told."""
    told = {
        **way.inherited(environment),
        "PYTHONUNBUFFERED": "1",
        **settings.rank_environment(values),
        BIND_VARIABLE: values.get("bind", "none"),
        **nccl_environment(values, choice, environment),
        **listening_environment(job_hosts, choice, values.get("verbose", False)),
    }
    return told | way.variables(values, job_hosts, choice, told)
