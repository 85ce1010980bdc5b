"""Which hosts of a job have fallen silent. A connection that leads nowhere is not closed: mpirun may see
nothing for a quarter of an hour.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from horovod.runner.processes import LONGEST_ROUND

SILENCE = 15.0  # seconds without a sign of life after which a host is given up
_FRESHER = 3.0  # seconds by which a silent host is behind the others when mpirun has noticed by itself
# Open MPI's paragraphs about a host whose daemon is gone, and about the first process that was killed.
_LOST_DAEMON = re.compile(rb"Remote daemon:[^\n]* on node (\S+)|Remote host: +(\S+)\s+Daemon exit status")
_KILLED = re.compile(rb"process rank (\d+) with PID \d+ on node \S+ exited on\s+signal (\d+)")


@dataclass
class SignsOfLife:
    """Times are seconds of one clock, ours."""

    _last_signs: dict[str, float] = field(default_factory=dict)
    _last_look: float = 0.0
    _text: bytes = b""

    def note(self, host: str, now: float) -> None:
        self._last_signs[host] = now

    def are_expected(self) -> bool:
        return bool(self._last_signs)

    def silent(self, now: float) -> set[str]:
        """The hosts to give up. To be asked every second: longer pauses were ours, and forgive all."""
        if now - self._last_look > LONGEST_ROUND:
            self._last_signs = dict.fromkeys(self._last_signs, now)
        self._last_look = now
        return {host for host, last in self._last_signs.items() if now - last > SILENCE}

    def read(self, text: bytes) -> None:
        """What mpirun itself says."""
        self._text = (self._text + text)[-(1 << 16) :]

    def named_lost(self) -> set[str]:
        """The hosts that mpirun says it has lost."""
        return {(one or other).decode(errors="replace") for one, other in _LOST_DAEMON.findall(self._text)}

    def named_killed(self) -> dict[int, int]:
        """Rank -> signal that killed what mpirun started for it: the wrapper, which then cannot report."""
        return {int(rank): int(number) for rank, number in _KILLED.findall(self._text)}

    def lost(self, hosts: set[str]) -> set[str]:
        """Of these hosts, those that are gone when mpirun has ended."""
        named = self.named_lost()
        newest = max(self._last_signs.values(), default=0.0)
        behind = {host for host, last in self._last_signs.items() if newest - last > _FRESHER}
        return {host for host in hosts if host in behind or host in named or host.partition(".")[0] in named}
