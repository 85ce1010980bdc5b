"""Why a membership was made or a job ended, in words for the log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from horovod.runner.elastic.workers import Worker

__all__ = ["FAILED", "RESETS", "Losses", "counted", "membership", "named", "too_few"]

# The beginnings are Horovod's: scripts look for them.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
RESETS = "Horovod was shutdown because number of resets during elastic job exceeded limit"
_SHOWN = 4  # losses that a message tells
_NAMED = 8  # workers, or hosts, that one names


class Losses:
    """Workers that failed.

    `all`, `since_last`: in words, and those since the last membership; `names`: who these are. `untaken`:
    (exit code, in words) of the first whose work nobody has taken up. `broken_since`: when the first member
    of the present generation failed; None while all are there. `is_certain`: one of them has ended, and was
    not only accused.
    """

    def __init__(self) -> None:
        self.all: list[str] = []
        self.since_last: list[str] = []
        self.names: list[str] = []
        self.untaken: tuple[int, str] | None = None
        self.broken_since: float | None = None
        self.is_certain = False

    def add(self, worker: Worker, text: str, code: int, now: float) -> None:
        self.all.append(text)
        self.since_last.append(text)
        self.names.append(str(worker))
        if self.untaken is None:
            self.untaken = (code or 1, text)
        if self.broken_since is None and worker.generation:  # a newcomer's end breaks nothing
            self.broken_since = now

    def take_publication(self) -> None:
        """Others go on with the work of those that were lost."""
        self.since_last, self.names = [], []
        self.untaken = None
        self.broken_since = None
        self.is_certain = False

    def take_success(self) -> None:
        """A member that has ended with success had nothing left that the lost ones would have done."""
        self.untaken = None

    def failure(self, sentence: str) -> str:
        """Why the job ends where too little is left of it, with what was lost, if anything was."""
        return f"{FAILED}: {sentence}{self.text()}" if self.all else sentence

    def text(self) -> str:
        """What was lost last, as the end of a sentence; "" where nothing was."""
        return f": {'; '.join(self.all[-_SHOWN:])}" if self.all else ""

    def out_of_resets(self, limit: int | None, have_hosts_changed: bool) -> str:
        """Why the job ends where its members ask for one membership more than it may have."""
        asked = "hosts have changed" if have_hosts_changed else "its members asked for another membership"
        return f"{RESETS} (--reset-limit {limit}): {'; '.join(self.since_last[-_SHOWN:]) or asked}"


def too_few(needed: int, left: int) -> str:
    """The beginning of a sentence about a job that ends for it."""
    needs = f"at least {counted(needed, 'worker')} {'is' if needed == 1 else 'are'} needed"
    return f"{needs}, and {left or 'none'} {'are' if left > 1 else 'is'} left"


def membership(
    lost: Sequence[str], removed: Sequence[tuple[Worker, str]], ready: Sequence[Worker], generation: int
) -> str:
    """Who is in this generation (`ready`) and why, told before they get their new ranks.

    How each of the `lost` was lost has been said when it was.
    """
    hosts = dict.fromkeys(worker.host for worker in ready)
    size = f"{counted(len(ready), 'worker')} on {counted(len(hosts), 'host')}"
    parts = [f"lost: {named(lost)}"] if lost else []
    if generation == 1:
        return "; ".join([f"the job begins with {size}", *parts])
    for reason in dict.fromkeys(reason for _, reason in removed):
        parts.append(f"out: {named(worker for worker, why in removed if why == reason)} ({reason})")
    new = [worker.host for worker in ready if not worker.generation]
    if new:
        parts.append(f"new: {named(f'{new.count(host)} on host {host}' for host in dict.fromkeys(new))}")
    if not parts:
        return f"the job goes on with the same {size}: they have asked for it, and none was lost"
    return "; ".join([f"the job goes on with {size}", *parts])


def named(things: Iterable[object]) -> str:
    """The first of them, and how many more there are."""
    names = [str(thing) for thing in things]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
