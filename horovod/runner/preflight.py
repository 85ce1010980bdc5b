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
from horovod.runner import host_agent
from horovod.runner.errors import LaunchError
from horovod.runner.shell import CONNECT_TIMEOUT, Shell

MOST_AT_ONCE = 64  # connections
REACH_SECONDS = 2.0
_NO_PYTHON, _NO_HOROVOD = 201, 202
# Says apart what is missing there; every shell that a user may have there understands `sh -c`.
_START_AGENT = f'test -x "$0" || exit {_NO_PYTHON}; test -r "$1" || exit {_NO_HOROVOD}; exec "$0" -I "$@"'
# (part of what ssh says, what it means, how many tries it is worth)
_REASONS = (
    ("could not resolve", "unknown host name", 1),
    ("name or service not known", "unknown host name", 1),
    ("connection refused", "connection refused: no ssh server listens there", 3),
    ("timed out", "timed out: the host is down, or a firewall is between", 2),
    ("no route to host", "no route to the host: it is down, or its network is", 2),
    ("network is unreachable", "its network is unreachable from here", 2),
    ("identification has changed", "its host key has changed: see `ssh-keygen -R {host}`", 1),
    ("host key verification failed", "its host key is not known here: type `ssh {host}` once", 1),
    ("permission denied", "ssh may not log in without a password: see `ssh-copy-id {host}`", 1),
    ("too many authentication failures", "ssh may not log in without a password: name the key with -i", 1),
    ("connection reset", "the ssh server closed the connection", 3),
    ("connection closed", "the ssh server closed the connection", 3),
)
T = TypeVar("T")


class _Unreachable(Exception):
    """Why a host cannot take part, and how many tries that is worth."""

    def __init__(self, why: str, tries: int = 1) -> None:
        super().__init__(why)
        self.tries = tries


def describe(hosts: Sequence[str], shell: Shell) -> tuple[dict[str, Any], dict[str, str]]:
    """host -> what its agent says of it; and of those that cannot take part, host -> why."""

    def ask(host: str) -> Any:
        record = _ask(shell, host, ["describe"])
        _understood(understood, record)
        return record

    return _asked(hosts, ask)


def refusal(failures: Mapping[str, str], asked: int, shell: Shell) -> LaunchError:
    """One sentence that names every host that failed, of so many."""
    count = f"{len(failures)} of {asked}" if asked > 1 else "1"
    plural = "s" if asked > 1 else ""
    why = "; ".join(f"{host} ({why})" for host, why in failures.items())
    return LaunchError(f"{count} remote host{plural} cannot take part, asked by {shell}: {why}")


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
            except _Unreachable as why:
                failures[host] = str(why)
    return answers, failures


def _ask(shell: Shell, host: str, arguments: Sequence[str]) -> Any:
    """The agent's answer, after a few tries where these may help."""
    tries = 1
    while True:
        try:
            return _ask_once(shell, host, arguments)
        except _Unreachable as why:
            if tries >= why.tries:
                raise
            tries += 1
            time.sleep(0.5)


def _understood(reading: Callable[[Any], T], answer: Any) -> T:
    try:
        return reading(answer)
    except ValueError as error:
        raise _Unreachable(
            f"its answer is not understood, {error}: install the same version of horovod there"
        ) from None


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
        raise _Unreachable(f"no answer within {3 * CONNECT_TIMEOUT} s of logging in") from None
    if done.returncode == 0 and (answer := _understood(host_agent.answer_in, done.stdout)) is not None:
        return answer
    raise explained(host, done.returncode, done.stderr.decode(errors="replace"))


def explained(host: str, code: int, said: str) -> _Unreachable:
    """Why this host cannot take part, from the exit code and words of ssh, or of the agent there."""
    last = (said.strip().splitlines() or ["it said nothing"])[-1].strip()
    if code == _NO_PYTHON:
        return _Unreachable(
            f"it has no {sys.executable}: install the same environment at the same path there"
        )
    if code == _NO_HOROVOD:
        return _Unreachable(f"it has no {host_agent.__file__}: install horovod at the same path there")
    if "No module named 'psutil'" in said:
        return _Unreachable("psutil is missing there: install horovod with its dependencies")
    for part, meaning, tries in _REASONS if code == 255 else ():
        if part in said.lower():
            return _Unreachable(meaning.format(host=host), tries)
    return _Unreachable(f"exit code {code}: {last}", 2 if code == 255 else 1)


def _ipv4(text: str) -> IPv4Address | None:
    return IPv4Address(text) if text.count(".") == 3 and ":" not in text else None
