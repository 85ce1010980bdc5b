"""Asks the other hosts of a job about themselves before it starts; says which cannot take part, and why."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, TypeVar

from horovod.common import software
from horovod.common.networks import Address, Description
from horovod.common.sentences import facts_of
from horovod.runner import errors, host_agent
from horovod.runner.errors import HostsRefused, Unreachable
from horovod.runner.shell import CONNECT_TIMEOUT, Shell

MOST_AT_ONCE = 64  # connections
REACH_SECONDS = 2.0
_NO_PYTHON, _NO_HOROVOD = 201, 202
# Says apart what is missing there; every shell that a user may have there understands `sh -c`.
_START_AGENT = f'test -x "$0" || exit {_NO_PYTHON}; test -r "$1" || exit {_NO_HOROVOD}; exec "$0" -I "$@"'
# (part of what ssh says, what it means, how many tries it is worth)
_REASONS = (
    ("could not resolve", errors.unknown_name, 1),
    ("name or service not known", errors.unknown_name, 1),
    ("connection refused", errors.connection_refused, 3),
    ("timed out", errors.timed_out, 2),
    ("no route to host", errors.no_route, 2),
    ("network is unreachable", errors.network_unreachable, 2),
    ("identification has changed", errors.key_changed, 1),
    ("host key verification failed", errors.key_unknown, 1),
    ("permission denied", errors.no_login, 1),
    ("too many authentication failures", errors.too_many_keys, 1),
    ("connection reset", errors.connection_closed, 3),
    ("connection closed", errors.connection_closed, 3),
)
T = TypeVar("T")


def describe(hosts: Sequence[str], shell: Shell) -> tuple[dict[str, Any], dict[str, str]]:
    """host -> what its agent says of it; and of those that cannot take part, host -> why."""

    def ask(host: str) -> Any:
        record = _ask(shell, host, ["describe"])
        _understood(understood, record)
        return record

    return _asked(hosts, ask)


def refusal(failures: Mapping[str, str], asked: int, shell: Shell) -> HostsRefused:
    """One sentence that names every host that failed, of so many."""
    return errors.hosts_refused(
        count=f"{len(failures)} of {asked} remote hosts" if asked > 1 else "1 remote host",
        failures=dict(failures),
        asked=asked,
        shell=str(shell),
        shown=shown(failures),
    )


def shown(failures: Mapping[str, str]) -> str:
    """Hosts, each with why it failed."""
    return "; ".join(f"{host} ({why})" for host, why in failures.items())


def description(record: Any) -> Description:
    """A host's answer as what `networks` works with. ValueError when it is something else."""
    try:
        return Description(
            tuple((str(name), IPv4Interface(str(address))) for name, address, _ in record["addresses"]),
            _ipv4(record["at"]),
            _ipv4(record["from"]),
            {str(name): int(speed) for name, _, speed in record["addresses"]},
        )
    except (TypeError, LookupError, AttributeError, OverflowError) as error:
        raise ValueError(f"no description of a host: {error}") from None


def software_of(record: Any) -> software.Facts:
    """The versions in a host's answer. ValueError when it is something else."""
    return software.checked(record.get("software") if isinstance(record, dict) else None)


def understood(record: Any) -> software.Facts:
    """The versions, of an answer that is whole. ValueError when it is something else."""
    description(record)
    return software_of(record)


def addresses_in(answer: Any) -> list[IPv4Address]:
    """ValueError when it is something else than a list of addresses."""
    if not isinstance(answer, list):
        raise ValueError(f"no list of addresses: {answer!r:.80}")
    return [IPv4Address(str(text)) for text in answer]


def port_in(answer: Any) -> int:
    """ValueError when it is something else than the number of a port, or 0."""
    if not isinstance(answer, int) or not 0 <= answer < 65536:
        raise ValueError(f"no port: {answer!r:.80}")
    return answer


def unreached(targets: Mapping[str, Sequence[Address]], shell: Shell) -> dict[str, list[IPv4Address]]:
    """host -> those of its targets that do not answer it. "" stands for this machine."""
    port = shell.port or 22

    def ask(host: str) -> list[IPv4Address]:
        words = [str(address) for address in targets[host]]
        if not host:
            return [IPv4Address(text) for text in host_agent.unreachable(port, REACH_SECONDS, words)]
        return _understood(addresses_in, _ask(shell, host, ["reach", str(port), str(REACH_SECONDS), *words]))

    return _on_each(list(targets), ask, shell)


def free_port(host: str, wanted: int, shell: Shell) -> int:
    """A port that is free on that host, see `host_agent.free_port`; 0 for none."""

    def ask(name: str) -> int:
        return _understood(port_in, _ask(shell, name, ["port", str(wanted)]))

    return _on_each([host], ask, shell)[host]


def agent_command(shell: Shell, host: str, arguments: Sequence[str]) -> list[str]:
    """Runs host_agent there, with the Python that ranks will have."""
    words = ["sh", "-c", _START_AGENT, sys.executable, host_agent.__file__, *arguments]
    return shell.command(host, words)


def _on_each(hosts: Sequence[str], ask: Callable[[str], T], shell: Shell) -> dict[str, T]:
    """LaunchError where one of them cannot take part."""
    answers, failures = _asked(hosts, ask)
    if failures:
        raise refusal(failures, len(hosts), shell)
    return answers


def _asked(hosts: Sequence[str], ask: Callable[[str], T]) -> tuple[dict[str, T], dict[str, str]]:
    answers: dict[str, T] = {}
    failures = {}
    with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as pool:
        for host, job in [(host, pool.submit(ask, host)) for host in hosts]:
            try:
                answers[host] = job.result()
            except Unreachable as why:
                failures[host] = str(why)
    return answers, failures


def _ask(shell: Shell, host: str, arguments: Sequence[str]) -> Any:
    """The agent's answer, after a few tries where these may help."""
    tries = 1
    while True:
        try:
            return _ask_once(shell, host, arguments)
        except Unreachable as why:
            if tries >= why.tries:
                raise
            tries += 1
            time.sleep(0.5)


def _understood(reading: Callable[[Any], T], answer: Any) -> T:
    try:
        return reading(answer)
    except ValueError as error:
        raise errors.not_understood(**facts_of(error)) from None


def _ask_once(shell: Shell, host: str, arguments: Sequence[str]) -> Any:
    try:
        done = subprocess.run(
            agent_command(shell, host, arguments),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},  # its messages are read
            timeout=3 * CONNECT_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise errors.no_answer(seconds=3 * CONNECT_TIMEOUT) from None
    if done.returncode == 0 and (answer := _understood(host_agent.answer_in, done.stdout)) is not None:
        return answer
    raise explained(host, done.returncode, done.stderr.decode(errors="replace"))


def explained(host: str, code: int, said: str) -> Unreachable:
    """Why this host cannot take part, from the exit code and words of ssh, or of the agent there."""
    last = (said.strip().splitlines() or ["it said nothing"])[-1].strip()
    if code == _NO_PYTHON:
        return errors.no_python(path=sys.executable)
    if code == _NO_HOROVOD:
        return errors.no_horovod(path=host_agent.__file__)
    if "No module named 'psutil'" in said:
        return errors.no_psutil()
    for part, row, tries in _REASONS if code == 255 else ():
        if part in said.lower():
            return row(host=host, tries=tries)
    return errors.unexplained(exit_code=code, said=last, tries=2 if code == 255 else 1)


def _ipv4(text: str) -> IPv4Address | None:
    return IPv4Address(text) if text.count(".") == 3 and ":" not in text else None
