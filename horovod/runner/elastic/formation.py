"""When a membership under formation is complete, and who cannot be in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.runner.elastic.limits import Limits
from horovod.runner.elastic.workers import Worker

__all__ = ["MOST_ACCUSED", "Formation", "have_newcomers_come", "lacks_state", "never_heard", "waited"]

MOST_ACCUSED = 3  # generations in a row: whoever asks each time, and is never heard, is out then


@dataclass(frozen=True)
class Formation:
    """Of the membership after `generation`; `needed`: workers, at least. `is_late`: there is no more time, so
    that what can be published is.
    """

    generation: int
    needed: int
    is_late: bool

    def is_complete(self, eligible: Sequence[Worker], limits: Limits, now: float) -> bool:
        """Whether those of `eligible` that ask are to be the membership now.

        After the first generation survivors wait for each other, and for newcomers only where they are too
        few. The first waits for all that were started.
        """
        ready = [worker for worker in eligible if worker.asks()]
        if len(ready) < self.needed or lacks_state(ready, self.generation):
            return False
        if self.is_late:
            return True
        if not self.generation:
            return len(ready) == len(eligible)
        survivors = [worker for worker in eligible if worker.generation]
        if not all(worker.asks() for worker in survivors):
            return False
        return len(survivors) >= self.needed or have_newcomers_come(eligible, limits, now)


def lacks_state(workers: Sequence[Worker], generation: int) -> bool:
    """Whether a membership of these, after this generation, would not know what training goes on from."""
    return bool(generation) and not any(worker.generation for worker in workers)


def waited(asking: Sequence[Worker], now: float) -> float:
    """Seconds since the first of these asked; 0 where none asks."""
    return now - min((worker.asks_since for worker in asking if worker.asks_since is not None), default=now)


def have_newcomers_come(eligible: Sequence[Worker], limits: Limits, now: float) -> bool:
    """Whether there are newcomers that ask: all that run, or one has waited long enough for others."""
    newcomers = [worker for worker in eligible if not worker.generation]
    asking = [worker for worker in newcomers if worker.asks()]
    if not asking:
        return False
    return len(asking) == len(newcomers) or waited(asking, now) >= limits.newcomer_window


def never_heard(ready: Sequence[Worker]) -> Worker | None:
    """Of those that ask each time and are accused each time, by others of them: who is accused most, of the
    highest rank.
    """
    numbers = {worker.number for worker in ready}
    accusers = {worker.number: len(worker.accusers & numbers) for worker in ready}
    accused = [w for w in ready if accusers[w.number] and w.accused_in_a_row + 1 >= MOST_ACCUSED]
    return max(accused, key=lambda w: (accusers[w.number], w.rank), default=None)
