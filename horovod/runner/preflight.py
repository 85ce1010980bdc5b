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

from horovod.runner import host_agent
from horovod.runner.errors import LaunchError
from horovod.runner.networks import Description
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


def describe(hosts: Sequence[str], shell: Shell) -> dict[str, Any]:
    """host -> what its agent says of it. LaunchError: one sentence that names every host that failed."""
    return _on_each(hosts, lambda host: _ask(shell, host, ["describe"]), f"by {shell}")


def description(record: Mapping[str, Any]) -> Description:
    """A host's answer as what `networks` works with."""
    return Description(
        tuple((str(name), IPv4Interface(address)) for name, address, _ in record["addresses"]),
        _ipv4(record["at"]),
        _ipv4(record["from"]),
        {str(name): int(speed) for name, _, speed in record["addresses"]},
    )


def unreached(targets: Mapping[str, Sequence[IPv4Address]], shell: Shell) -> dict[str, list[IPv4Address]]:
    """host -> those of its targets that do not answer it. "" stands for this machine."""
    port = shell.port or 22

    def ask(host: str) -> list[IPv4Address]:
        words = [str(address) for address in targets[host]]
        if not host:
            return [IPv4Address(text) for text in host_agent.unreachable(port, REACH_SECONDS, words)]
        answer = _ask(shell, host, ["reach", str(port), str(REACH_SECONDS), *words])
        return [IPv4Address(text) for text in answer]

    return _on_each(list(targets), ask, f"by {shell}")


def free_port(host: str, wanted: int, shell: Shell) -> int:
    """A port that is free on that host, see `host_agent.free_port`; 0 for none."""
    return int(_on_each([host], lambda name: _ask(shell, name, ["port", str(wanted)]), f"by {shell}")[host])


def agent_command(shell: Shell, host: str, arguments: Sequence[str]) -> list[str]:
    """Runs host_agent there, with the Python that ranks will have."""
    words = ["sh", "-c", _START_AGENT, sys.executable, host_agent.__file__, *arguments]
    return shell.command(host, words)


def _on_each(hosts: Sequence[str], ask: Callable[[str], T], how: str) -> dict[str, T]:
    answers: dict[str, T] = {}
    failures = []
    with ThreadPoolExecutor(max_workers=MOST_AT_ONCE) as pool:
        for host, job in [(host, pool.submit(ask, host)) for host in hosts]:
            try:
                answers[host] = job.result()
            except _Unreachable as why:
                failures.append(f"{host} ({why})")
    if failures:
        count = f"{len(failures)} of {len(hosts)}" if len(hosts) > 1 else "1"
        plural = "s" if len(hosts) > 1 else ""
        raise LaunchError(f"{count} remote host{plural} cannot take part, asked {how}: {'; '.join(failures)}")
    return answers


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
    if done.returncode == 0 and (answer := host_agent.answer_in(done.stdout)) is not None:
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
