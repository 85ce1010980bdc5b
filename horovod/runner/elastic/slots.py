"""The slots that a job may use: the slots of all found hosts, without the failed ones.

A *slot* of a host is room for one worker; its number is the local rank of the worker's first membership, and
so its GPU. `Limits.blacklist` sets the cost of a worker's death:

    * SLOT: its slot, for a cool-down that doubles with each death there. A host with too many deaths
      (`Limits.max_worker_failures` within FAILURE_WINDOW) is lost.
    * HOST: its host with all workers there, which is Horovod's rule.

A lost host comes back only if a range was given, after a cool-down. Before the first membership, failed slots
and hosts do not come back, so that a start that always fails ends.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from horovod.common.time_limits import FAILURE_WINDOW, SLOT_COOLDOWN
from horovod.runner.elastic.reasons import counted
from horovod.runner.elastic.settings import HOST, Limits

Key = TypeVar("Key")  # a host's name, or (host, slot number)

_JITTER = 0.1  # of a cool-down, added at most: keys that failed together come back apart


@dataclass
class Blacklist(Generic[Key]):
    """Failed hosts or slots. Without a range they stay; with (lowest, highest) seconds they come back.

    The n-th failure of a key keeps it away for lowest * 2**(n - 1) seconds and up to a tenth more, at most
    for `highest`. `clock` returns seconds, `chance` a number in [0, 1). `is_final`: no key comes back now.
    """

    cooldown_range: tuple[float, float] | None
    clock: Callable[[], float]
    chance: Callable[[], float] = random.random
    is_final: bool = False
    _failures: Counter[Key] = field(default_factory=Counter)
    _until: dict[Key, float] = field(default_factory=dict)

    def __contains__(self, key: Key) -> bool:
        return key in self._until and (self.is_final or self.clock() < self._until[key])

    def add(self, key: Key) -> float:
        """Add a key; return the seconds until it comes back, infinity without a range.

        A key on the list keeps its time: workers of one host fail together.
        """
        now = self.clock()
        if now < self._until.get(key, now):
            return self._until[key] - now
        self._failures[key] += 1
        seconds = float("inf")
        if self.cooldown_range is not None:
            doublings = min(self._failures[key] - 1, 12)  # 2**12 seconds exceed any highest
            lowest, highest = self.cooldown_range
            seconds = min(highest, lowest * float(2**doublings) * (1 + _JITTER * self.chance()))
        self._until[key] = now + seconds
        return seconds


class Slots:
    """`hosts`: name -> slots, the oldest first. `failed`: hosts that cannot take part from the beginning."""

    def __init__(
        self, limits: Limits, hosts: Mapping[str, int], clock: Callable[[], float], failed: Collection[str]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._found = dict(hosts)  # in order of age, those on the blacklist included
        self._lost: Blacklist[str] = Blacklist(limits.cooldown_range, clock, is_final=True)
        self._blacklist: Blacklist[tuple[str, int]] = Blacklist(
            limits.cooldown_range or SLOT_COOLDOWN, clock, is_final=True
        )
        self._failures: dict[str, list[float]] = {}  # times of worker failures, by host
        self._has_begun = False  # there was a membership
        for host in failed:
            self.lose(host)

    def begin(self) -> None:
        """Note the first membership: from now on, hosts and slots come back after their cool-downs."""
        self._has_begun, self._lost.is_final, self._blacklist.is_final = True, False, False

    def find(self, hosts: Mapping[str, int]) -> None:
        """Replace the hosts by these. A known host keeps its age."""
        kept = [host for host in self._found if host in hosts]
        self._found = {host: hosts[host] for host in dict.fromkeys([*kept, *hosts])}

    def hosts(self) -> dict[str, int]:
        """Return the slots of each usable host, the oldest host first."""
        return {host: slots for host, slots in self._found.items() if host not in self._lost}

    def usable(self, host: str, slots: int) -> list[int]:
        """Return a host's slots in which workers may start: those without a recent failure."""
        return [number for number in range(slots) if (host, number) not in self._blacklist]

    def count(self) -> int:
        return sum(len(self.usable(host, slots)) for host, slots in self.hosts().items())

    def possible(self) -> int:
        """Return the number of known hosts' slots that are usable now or after a cool-down."""
        if not self._has_begun:
            return self.count()
        return sum((self._found if self._limits.cooldown_range else self.hosts()).values())

    def are_all_lost(self) -> bool:
        """Whether hosts are known, and no slot of theirs will ever be usable."""
        return bool(self._found) and not self.possible()

    def fail(self, host: str, slot: int) -> tuple[bool, str]:
        """Note a worker's failure. Return whether the host is lost with all its workers, and a sentence."""
        if self._limits.blacklist == HOST:
            return True, self.lose(host)
        now = self._clock()
        recent = [at for at in self._failures.get(host, ()) if now - at < FAILURE_WINDOW]
        self._failures[host] = [*recent, now]
        seconds = self._blacklist.add((host, slot))
        if len(self._failures[host]) >= self._limits.max_worker_failures:
            failed = counted(len(self._failures[host]), "worker")
            why = f"{failed} failed there within {FAILURE_WINDOW / 60:g} minutes (--max-worker-failures)"
            return True, f"{self.lose(host)}: {why}"
        if self._has_begun:
            return False, f"slot {slot} there is used again after {seconds:.0f} s"
        return False, f"slot {slot} there is not used again before the job has begun"

    def lose(self, host: str) -> str:
        """Put a host on the blacklist, permanently or for a while; return a sentence."""
        self._failures.pop(host, None)
        seconds = self._lost.add(host)
        until = "" if math.isinf(seconds) else f" for {seconds:.0f} s"
        return f"host {host} is on the blacklist{until}"
