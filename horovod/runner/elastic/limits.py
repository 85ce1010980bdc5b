"""How large an elastic job may be, and how long it waits for what."""

from __future__ import annotations

from dataclasses import dataclass

from horovod.common import time_limits
from horovod.runner import errors

__all__ = ["HOST", "MAX_WORKER_FAILURES", "SLOT", "Limits"]

SLOT, HOST = "slot", "host"  # what the death of a worker costs
# Of one host within FAILURE_WINDOW. A slot that always fails has at most 7 in it, as its cool-down
# doubles: so one broken GPU does not cost the host, and two do.
MAX_WORKER_FAILURES = 10


@dataclass(frozen=True)
class Limits:
    """Of one job; times in seconds. ValueError where they contradict each other.

    `np`: slots that the start waits for. `max_np` None: as many workers as there are slots.
    `hosts_may_come` False: hosts are those of the beginning, so nobody waits for others.
    `blacklist`: what the death of a worker costs, its SLOT or its HOST. `cooldown_range`: (lowest, highest)
    seconds after which that is used again; None: a host never, a slot by a default range.
    `max_worker_failures`: with SLOT, so many deaths of a host's workers within some minutes cost the host.
    `elastic_timeout`: of the start's wait for slots, and of each membership's wait for those that belong to
    it: at first for all that were started, then for survivors, and for `min_np` workers. Whoever has not
    asked so long after the first one did is left out. A survivor asks when it next uses Horovod, so that a
    long step, or a checkpoint, takes its time. Those that are waited for are named after `naming_after`.
    `newcomer_window`: for how long newcomers that are ready wait for others that are starting.
    `accusation_grace`: how long an accused worker may take to ask; it is `doubtful_grace` where another has
    failed in this generation: whoever follows that one looks silent too.
    `leave_grace`: from being told that it is out, or left out, until a worker is stopped. One that works, and
    that nobody accuses, has the elastic timeout before that.
    `notify_again`: between two notifications of the same change: one may be lost in a reset.
    """

    np: int
    min_np: int
    max_np: int | None
    hosts_may_come: bool = True
    elastic_timeout: float = 600.0
    reset_limit: int | None = None
    cooldown_range: tuple[float, float] | None = None
    blacklist: str = SLOT
    max_worker_failures: int = MAX_WORKER_FAILURES
    naming_after: float = time_limits.NAMING_AFTER
    newcomer_window: float = time_limits.NEWCOMER_WINDOW
    accusation_grace: float = time_limits.ACCUSATION_GRACE
    doubtful_grace: float = time_limits.DOUBTFUL_GRACE
    leave_grace: float = time_limits.LEAVE_GRACE
    notify_again: float = time_limits.NOTIFY_AGAIN

    def __post_init__(self) -> None:
        if not 1 <= self.min_np <= self.np or (self.max_np is not None and self.max_np < self.np):
            raise errors.limits_contradict(min_np=self.min_np, np=self.np, max_np=self.max_np)
