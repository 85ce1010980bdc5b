"""What has failed, hosts or slots of hosts, and when each may be used again."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Generic, TypeVar

from horovod.runner import errors

__all__ = ["LONGEST", "SHORTEST", "Blacklist", "checked_range"]

Key = TypeVar("Key")  # a host's name, or (host, number of its slot)

SHORTEST, LONGEST = 1, 3600  # seconds of a cool-down
_JITTER = 0.1  # of a cool-down at most, added: what failed together does not come back together


def checked_range(cooldown_range: tuple[float, float]) -> tuple[float, float]:
    """(lowest, highest) cool-down in seconds. ValueError says what is wrong with it."""
    if len(cooldown_range) != 2:
        raise errors.cooldown_no_pair(value=list(cooldown_range))
    lowest, highest = cooldown_range
    if not SHORTEST <= lowest <= highest <= LONGEST:  # NaN is refused too
        raise errors.cooldown_bounds(shortest=SHORTEST, longest=LONGEST, lowest=lowest, highest=highest)
    return lowest, highest


class Blacklist(Generic[Key]):
    """Failed hosts or slots. Without a range they stay; with (lowest, highest) seconds they come back.

    The n-th failure of one keeps it away for lowest * 2**(n - 1) seconds and up to a tenth more, but never
    longer than highest. `clock` gives seconds, `chance` a number in [0, 1). ValueError for a wrong range.
    """

    def __init__(
        self,
        cooldown_range: tuple[float, float] | None,
        clock: Callable[[], float],
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.range = None if cooldown_range is None else checked_range(cooldown_range)
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
        seconds = float("inf") if self.range is None else self._cooldown(*self.range, self._failures[key])
        self._until[key] = self._clock() + seconds
        return seconds

    def _cooldown(self, lowest: float, highest: float, failures: int) -> float:
        doublings = min(failures - 1, 12)  # 2**12 seconds are more than LONGEST
        return min(highest, lowest * float(2**doublings) * (1 + _JITTER * self._chance()))

    def pop_returned(self) -> set[Key]:
        """Those whose cool-down has passed; each is told once. They still count as having failed."""
        returned = {key for key in self._until if key not in self}
        for key in returned:
            del self._until[key]
        return returned
