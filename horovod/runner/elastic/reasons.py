"""Why a membership was made or a job ended, in words for the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from horovod.runner.elastic.workers import Worker

__all__ = ["FAILED", "RESETS", "Losses", "Wait", "reasons", "too_few"]

# The beginnings are Horovod's: scripts look for them.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
RESETS = "Horovod was shutdown because number of resets during elastic job exceeded limit"
_SHOWN = 4  # losses that a message tells
_NAMED = 8  # workers that one names


class Losses:
    """Workers that failed.

    `all`, `since_last`: in words, and those since the last membership. `untaken`: (exit code, in words) of
    the first whose work nobody has taken up. `broken_since`: when the first member of the present generation
    failed; None while all are there. `is_certain`: one of them has ended, and was not only accused.
    """

    def __init__(self) -> None:
        self.all: list[str] = []
        self.since_last: list[str] = []
        self.untaken: tuple[int, str] | None = None
        self.broken_since: float | None = None
        self.is_certain = False

    def add(self, text: str, code: int, broke_at: float | None) -> None:
        """`broke_at`: the time where it was a member; None for a newcomer, whose end breaks nothing."""
        self.all.append(text)
        self.since_last.append(text)
        if self.untaken is None:
            self.untaken = (code or 1, text)
        if self.broken_since is None:
            self.broken_since = broke_at

    def take_publication(self) -> None:
        """Others go on with the work of those that were lost."""
        self.since_last = []
        self.untaken = None
        self.broken_since = None
        self.is_certain = False

    def take_success(self) -> None:
        """A member that has ended with success had nothing left that the lost ones would have done."""
        self.untaken = None

    def text(self) -> str:
        """What was lost last, as the end of a sentence; "" where nothing was."""
        return f": {'; '.join(self.all[-_SHOWN:])}" if self.all else ""


@dataclass(frozen=True)
class Wait:
    """For a membership; `seconds` at most. Before workers are started (`has_begun`), it is one for slots.

    `needed`: workers, or slots, at least; `here`: those that are ready. `slots`: of hosts that can be used.
    `late`: workers that could be in it, and have not asked; `without`: those that have no slot any more.
    """

    seconds: float
    needed: int
    here: int
    slots: int
    has_begun: bool = False
    late: Sequence[Worker] = ()
    without: Sequence[Worker] = ()

    def beginning(self, missing: int) -> str:
        """What is said when so many are missing."""
        more = _count(missing, "more worker" if self.has_begun else "more slot")
        of_all = (
            f"as at least {self.needed} are needed" if self.has_begun else f"of {self.needed} for the start"
        )
        starting = [worker for worker in self.late if not worker.generation]
        there = f"; {_count(len(starting), 'worker')} {_verb(starting)} starting" if starting else ""
        most = f"up to {self.seconds:g} s (--elastic-timeout)"
        return f"waits for {more}, {of_all}, {most}{there}{self._outside()}"

    def end(self) -> str:
        """What is said when the time is over."""
        waited = f"waited {self.seconds:g} s (--elastic-timeout)"
        hosts = f"hosts that can be used have {_count(self.slots, 'slot')}"
        if not self.has_begun:
            return f"{waited} for {_count(self.needed, 'slot')}, which the start needs: {hosts}"
        ready = f"{self.here} of {self.needed} {'worker' if self.needed == 1 else 'workers'} ready"
        late = f"; these did not come: {_named(self.late)}" if self.late else ""
        return f"{waited}: {ready}, and {hosts}{late}{self._outside()}"

    def _outside(self) -> str:
        has = "has" if len(self.without) == 1 else "have"
        return f"; {_named(self.without)} {has} no slot any more" if self.without else ""


def too_few(needed: int, left: int) -> str:
    """The beginning of a sentence about a job that ends for it."""
    needs = f"at least {_count(needed, 'worker')} {'is' if needed == 1 else 'are'} needed"
    return f"{needs}, and {left or 'none'} {'are' if left > 1 else 'is'} left"


def _named(workers: Sequence[Worker]) -> str:
    more = f" and {len(workers) - _NAMED} more" if len(workers) > _NAMED else ""
    return f"{', '.join(map(str, workers[:_NAMED]))}{more}"


def _verb(workers: Sequence[Worker]) -> str:
    return "is" if len(workers) == 1 else "are"


def reasons(
    losses: Sequence[str], removed: Sequence[tuple[Worker, str]], ready: Sequence[Worker], generation: int
) -> str:
    """Why this generation has these members (`ready`), told before they get their new ranks."""
    hosts = len({worker.host for worker in ready})
    size = f"{_count(len(ready), 'worker')} on {_count(hosts, 'host')}"
    if generation == 1:
        return "; ".join([f"the first: {size}", *losses])
    parts = [*losses, *(f"{worker} is out: {reason}" for worker, reason in removed)]
    new = [worker.host for worker in ready if not worker.generation]
    parts += [f"{_count(new.count(host), 'worker')} on host {host} came" for host in dict.fromkeys(new)]
    return f"{'; '.join(parts) or 'its members asked for it, and none is lost'} ({size})"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
