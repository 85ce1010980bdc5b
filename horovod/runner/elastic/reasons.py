"""Why a membership was made or a job ended, in words for the log."""

from __future__ import annotations

from collections.abc import Sequence

from horovod.runner.elastic.workers import Worker

__all__ = ["FAILED", "RESETS", "Losses", "reasons"]

# The beginnings are Horovod's: scripts look for them.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
RESETS = "Horovod was shutdown because number of resets during elastic job exceeded limit"
_SHOWN = 4  # losses that a message tells


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
