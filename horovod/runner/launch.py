"""The entry point of horovodrun: from a command line to a job."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import horovod
from horovod.runner import command_line, errors, hosts, mistakes, settings, starting
from horovod.runner.agents.outcome import signal_name
from horovod.runner.agents.supervision import OUTPUT_CLOSED, OUTPUT_FAILED, Ending
from horovod.runner.elastic.settings import refuse_alone
from horovod.runner.errors import LaunchError
from horovod.runner.streams import discard, open_closed_ones, say

USAGE_ERROR = 2
_TOPOLOGY = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from horovod.topology.__main__ import main; sys.exit(main())"
)


def main(arguments: Sequence[str] | None = None) -> int:
    if not open_closed_ones():
        say("standard output is closed, and ranks' output would go nowhere; redirect it (to /dev/null, say)")
        return USAGE_ERROR
    try:
        try:
            return _main(arguments)
        finally:
            sys.stdout.flush()
    except OSError as error:  # of horovodrun's own lines; ranks' output has its own handling
        discard(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return OUTPUT_CLOSED
        say(f"standard output cannot be written: {error.strerror}")
        return OUTPUT_FAILED


def _main(arguments: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    given, command = command_line.parse(words)
    if given.get("version"):
        print(horovod.__version__)
        return 0
    if given.get("check_build"):
        from horovod.runner import build_report  # here, as jobs do not need it

        return build_report.check_build()
    if given.get("topology"):
        _become_topology(words)
    try:
        if "print_completion" in given:
            print(command_line.completion(given["print_completion"]))
            return 0
        if given.get("tune_launch"):
            from horovod.runner import tune_launch

            return tune_launch.main(words, len(command), *_options(given, command))
        ending = start(_options(given, command)[1], command, os.environ)
    except LaunchError as error:
        say(str(error))
        return USAGE_ERROR
    except KeyboardInterrupt:
        say("stopped by SIGINT before any rank started")
        return 130
    if ending.message:
        say(ending.message)
    return ending.code


run_commandline = main  # the console script, under Horovod's name for it


def _become_topology(arguments: Sequence[str]) -> NoReturn:
    """Replace this process: the topology needs the native core, which the launcher does not load."""
    words = [sys.executable, "-c", _TOPOLOGY, json.dumps(sys.path), *arguments]
    sys.stdout.flush()
    os.execv(sys.executable, words)


def _options(given: Mapping[str, Any], command: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of command line and config file, and these merged with the environment.

    Prints warnings. LaunchError for settings that contradict each other.
    """
    from_file, warnings = settings.load(given["config_file"]) if "config_file" in given else ({}, [])
    values = settings.merged(given, from_file, os.environ)
    warnings += settings.environment_warnings(os.environ)
    for warning in [*warnings, *mistakes.variable_warnings(os.environ), *mistakes.command_warnings(command)]:
        say(f"warning: {warning}")
    mistakes.refuse_without_other(given, values)
    refuse_alone(given, values)
    knows_ranks = bool(values.get("np") or hosts.allocation(os.environ))
    mistakes.check_command(command, command_line.FLAGS, knows_ranks)
    misread = mistakes.compression_warnings(values, os.environ, command)
    for warning in misread + mistakes.ddp_warnings(values, command):
        say(f"warning: {warning}")
    return {**from_file, **given}, values


def start(
    values: Mapping[str, Any],
    command: Sequence[str],
    environment: Mapping[str, str],
    payload: bytes = b"",
) -> Ending:
    """Run a job with the options `values` (as `settings.merged` makes them) to its end.

    `payload`: of a function that ranks call. LaunchError if nothing can start.
    """
    way = starting.way_of(values, command)
    if isinstance(way, starting.ByMpirun):
        from horovod.runner import by_mpirun

        if payload:
            raise errors.function_by_mpirun()
        return by_mpirun.run(way, values, command, environment)
    from horovod.runner import by_agents
    from horovod.runner.agents.driver import Interrupted

    try:
        return by_agents.run(way, values, command, environment, payload)
    except Interrupted as signalled:
        number = signalled.args[0]
        return Ending(128 + number, f"stopped by {signal_name(number)} before any rank started")
