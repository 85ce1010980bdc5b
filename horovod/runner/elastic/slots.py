"""Which slots a job may use: those of the hosts that were found, without what has failed.

A *slot* of a host is room for one worker there; its number is the local rank of that worker's first
membership, and so its GPU. What the death of a worker costs is `Limits.blacklist`:

    * SLOT: its slot, for a cool-down that doubles with each death there. A host whose workers die again and
      again (`Limits.max_worker_failures` within FAILURE_WINDOW) is given up as a whole.
    * HOST: its host with all workers there, Horovod's rule.

A host that is lost, or given up, never comes back; where a range was given, it does after a cool-down. Until
the first membership all that has failed stays away, so that a start that always fails ends.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeVar

from horovod.common.time_limits import FAILURE_WINDOW, SLOT_COOLDOWN
from horovod.runner.elastic.reasons import counted
from horovod.runner.elastic.settings import HOST, Limits

Key = TypeVar("Key")  # a host's name, or (host, number of its slot)

_JITTER = 0.1  # of a cool-down at most, added: what failed together does not come back together


class Blacklist(Generic[Key]):
    """Failed hosts or slots. Without a range they stay; with (lowest, highest) seconds they come back.

    The n-th failure of one keeps it away for lowest * 2**(n - 1) seconds and up to a tenth more, but never
    longer than highest. `clock` gives seconds, `chance` a number in [0, 1).
    """

    def __init__(
        self,
        cooldown_range: tuple[float, float] | None,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._range = cooldown_range
        self._clock = clock
        self._chance = chance
        self._failures: dict[Key, int] = {}
        self._until: dict[Key, float] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._until and self._clock() < self._until[key]

    def add(self, key: Key) -> float:
        """Seconds that it is kept away from now on; infinity without a range.

        What is on the list already stays as it is: workers of one host fail together.
        """
        if key in self:
            return self._until[key] - self._clock()
        self._failures[key] = self._failures.get(key, 0) + 1
        seconds = float("inf")
        if self._range is not None:
            doublings = min(self._failures[key] - 1, 12)  # 2**12 seconds are more than any highest
            lowest, highest = self._range
            seconds = min(highest, lowest * float(2**doublings) * (1 + _JITTER * self._chance()))
        self._until[key] = self._clock() + seconds
        return seconds


class Slots:
    """`hosts`: name -> slots, the oldest first. `failed`: hosts that cannot take part from the beginning."""

    def __init__(
        self, limits: Limits, hosts: Mapping[str, int], clock: Callable[[], float], failed: Collection[str]
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._found = dict(hosts)  # in order of age; those on the blacklist too
        self._lost: Blacklist[str] = Blacklist(limits.cooldown_range, clock)
        self._blacklist: Blacklist[tuple[str, int]] = Blacklist(limits.cooldown_range or SLOT_COOLDOWN, clock)
        self._failures: dict[str, list[float]] = {}  # when workers of a host failed
        self._has_begun = False  # there was a membership
        self._early_hosts: set[str] = set()  # that failed before
        self._early_slots: set[tuple[str, int]] = set()
        for host in failed:
            self.lose(host)

    def begin(self) -> None:
        """There is a membership: what failed before comes back by its cool-down, as what fails later does."""
        self._has_begun = True

    def find(self, hosts: Mapping[str, int]) -> None:
        """All hosts that there are from now on. One that was there before keeps its age."""
        kept = [host for host in self._found if host in hosts]
        self._found = {host: hosts[host] for host in dict.fromkeys([*kept, *hosts])}

    def hosts(self) -> dict[str, int]:
        """Slots of each host that may be used, the oldest first."""
        barred = () if self._has_begun else self._early_hosts
        return {
            host: slots
            for host, slots in self._found.items()
            if host not in barred and host not in self._lost
        }

    def usable(self, host: str, slots: int) -> list[int]:
        """Those of a host's slots in which workers may be started: none has failed there lately."""
        early = () if self._has_begun else self._early_slots
        return [n for n in range(slots) if (host, n) not in early and (host, n) not in self._blacklist]

    def count(self) -> int:
        return sum(len(self.usable(host, slots)) for host, slots in self.hosts().items())

    def possible(self) -> int:
        """Slots of known hosts that may be used now, or will be when a cool-down has passed."""
        if not self._has_begun:
            hosts = self.hosts()
            early = [slot for host, slot in self._early_slots if slot < hosts.get(host, 0)]
            return sum(hosts.values()) - len(early)
        return sum((self._found if self._limits.cooldown_range else self.hosts()).values())

    def are_all_lost(self) -> bool:
        """Whether hosts are known, and none of their slots will ever be used."""
        return bool(self._found) and not self.possible()

    def fail(self, host: str, slot: int) -> tuple[bool, str]:
        """A worker has failed there: whether that costs the host with all its workers, and a sentence."""
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
        self._early_slots.add((host, slot))
        return False, f"slot {slot} there is not used again before the job has begun"

    def lose(self, host: str) -> str:
        """The host as a whole is not used any more, or for a while: a sentence."""
        self._failures.pop(host, None)
        seconds = self._lost.add(host)
        if not self._has_begun:
            self._early_hosts.add(host)
        until = "" if math.isinf(seconds) else f" for {seconds:.0f} s"
        return f"host {host} is on the blacklist{until}"
