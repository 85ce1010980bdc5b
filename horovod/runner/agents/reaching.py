"""How an agent is started on another host, and the reasons why a host cannot take part."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from horovod.runner import errors
from horovod.runner.agents.frames import BY_SSH, FACTS, HERE
from horovod.runner.errors import HostsRefused, Unreachable
from horovod.runner.hosts import is_local
from horovod.runner.shell import Shell, Ssh

_AGENT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "agent.py")
_NO_PYTHON, _NO_HOROVOD = 201, 202
# Tells missing files apart; `sh -c` works in every login shell.
_START_AGENT = f'test -x "$0" || exit {_NO_PYTHON}; test -r "$1" || exit {_NO_HOROVOD}; exec "$0" -I "$@"'
# (part of ssh's message, its meaning, how many tries it is worth)
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


@dataclass(frozen=True)
class Ways:
    """How hosts are reached: by `shell`, except for names of this machine; without a shell all names are."""

    shell: Shell | None = None

    def is_here(self, host: str) -> bool:
        return self.shell is None or is_local(host)

    def words(self, host: str) -> list[str]:
        """Return the command that starts an agent there; its standard streams are the agent's.

        -S on this machine: without facts it needs only the standard library, and starts in 20 ms.
        """
        if self.shell is None or is_local(host):
            return [sys.executable, "-I", "-S", _AGENT, HERE]
        by_ssh = [BY_SSH] if isinstance(self.shell, Ssh) else []
        return self.shell.command(host, ["sh", "-c", _START_AGENT, sys.executable, _AGENT, *by_ssh, FACTS])

    def environment(self, host: str) -> Mapping[bytes, bytes]:
        """Return that process' environment. ssh's messages must be English; LC_ALL would override that, and
        reach the ranks.
        """
        if self.is_here(host) or not isinstance(self.shell, Ssh):
            return os.environb
        others = {name: value for name, value in os.environb.items() if name != b"LC_ALL"}
        return {**others, b"LC_MESSAGES": b"C"}


def explained(host: str, code: int, said: str) -> Unreachable:
    """Return why this host cannot take part, from exit code and messages of ssh or the agent there."""
    last = (said.strip().splitlines() or ["it said nothing"])[-1].strip()
    if code == _NO_PYTHON:
        return errors.no_python(path=sys.executable)
    if code == _NO_HOROVOD:
        return errors.no_horovod(path=_AGENT)
    if "No module named 'psutil'" in said:
        return errors.no_psutil()
    for part, row, tries in _REASONS if code == 255 else ():
        if part in said.lower():
            return row(host=host, tries=tries)
    return errors.unexplained(exit_code=code, said=last, tries=2 if code == 255 else 1)


def refusal(failures: Mapping[str, str], asked: int, shell: Shell | None) -> HostsRefused:
    """Return one error that names every host that failed, of `asked` hosts."""
    return errors.hosts_refused(
        count=f"{len(failures)} of {asked} remote hosts" if asked > 1 else "1 remote host",
        failures=dict(failures),
        asked=asked,
        shell=str(shell),
        shown="; ".join(f"{host} ({why})" for host, why in failures.items()),
    )
