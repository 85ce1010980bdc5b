"""Log sentences: why a membership was made, what a job waits for, and why it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from horovod.runner.elastic.workers import Worker

# Scripts search for these beginnings, which are Horovod's.
FAILED = "Horovod detected that one or more processes exited with non-zero status"
RESETS = "Horovod was shutdown because number of resets during elastic job exceeded limit"
_SHOWN = 4  # losses in a message
_NAMED = 8  # workers or hosts in a message
_NO_STATE = "all workers that hold the state of training are there, and new ones have none"


@dataclass
class Losses:
    """Workers that failed."""

    all: list[str] = field(default_factory=list)  # descriptions
    since_last: list[str] = field(default_factory=list)  # of them, those since the last membership
    names: list[str] = field(default_factory=list)  # of the workers in `since_last`
    untaken: tuple[int, str] | None = None  # code and description of the first whose work no other continues
    broken_since: float | None = None  # when the first member of the present generation failed
    is_certain: bool = False  # one of them has ended, and was not only accused

    def add(self, worker: Worker, text: str, code: int, now: float) -> None:
        self.all.append(text)
        self.since_last.append(text)
        self.names.append(str(worker))
        if self.untaken is None:
            self.untaken = (code or 1, text)
        if self.broken_since is None and worker.generation:  # a newcomer's end breaks nothing
            self.broken_since = now

    def take_publication(self) -> None:
        """Other workers continue the work of the lost ones."""
        self.since_last, self.names, self.untaken = [], [], None
        self.broken_since, self.is_certain = None, False

    def failure(self, sentence: str) -> str:
        """Return why the job ends with too little left, with the losses, if there are any."""
        return f"{FAILED}: {sentence}{self.text()}" if self.all else sentence

    def text(self) -> str:
        """Return the last losses, as the end of a sentence; "" if there were none."""
        return f": {'; '.join(self.all[-_SHOWN:])}" if self.all else ""

    def out_of_resets(self, limit: int | None, have_hosts_changed: bool) -> str:
        """Return why the job ends when members request a membership beyond the limit."""
        asked = "hosts have changed" if have_hosts_changed else "its members asked for another membership"
        return f"{RESETS} (--reset-limit {limit}): {'; '.join(self.since_last[-_SHOWN:]) or asked}"


def too_few(needed: int, left: int) -> str:
    """Return the beginning of a sentence about a job that ends because it has too few workers."""
    needs = f"at least {counted(needed, 'worker')} {'is' if needed == 1 else 'are'} needed"
    return f"{needs}, and {left or 'none'} {'are' if left > 1 else 'is'} left"


def membership(
    lost: Sequence[str], removed: Sequence[tuple[Worker, str]], ready: Sequence[Worker], generation: int
) -> str:
    """Return the members of this generation (`ready`) and the reason for it.

    Earlier messages have said how the `lost` were lost.
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
    """Return the first names, and the number of the others."""
    names = [str(thing) for thing in things]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


@dataclass(frozen=True)
class Wait:
    """A wait for a membership; for slots, before workers are started (not `has_begun`)."""

    seconds: float  # at most
    needed: int  # minimum number of workers, or of slots
    here: int  # how many are ready
    slots: int  # of usable hosts
    has_begun: bool = False
    late: Sequence[Worker] = ()  # workers that could be in the membership, and have not asked
    without: Sequence[Worker] = ()  # workers that have no slot any more
    is_first: bool = False  # there was no membership before
    lacks_state: bool = False  # there was one, and none of its members could be in this one

    def survivors(self) -> list[Worker]:
        """Return the members that have not asked, and are not accused."""
        return [worker for worker in self.late if worker.generation and worker.accused_since is None]

    def missing(self) -> int:
        """Return how many workers are still to come. Survivors count as present; so do, for the first
        membership, all started workers.
        """
        coming = [worker for worker in self.late if worker.generation or self.is_first]
        return self.needed - self.here - len(coming)

    def beginning(self, missing: int) -> str:
        """Return the message when so many are missing."""
        more = counted(missing, "more worker" if self.has_begun else "more slot")
        of_all = (
            f"as at least {self.needed} are needed" if self.has_begun else f"of {self.needed} for the start"
        )
        starting = [worker for worker in self.late if not worker.generation]
        are = "is" if len(starting) == 1 else "are"
        there = f"; {counted(len(starting), 'worker')} {are} starting" if starting else ""
        return f"waits for {more}, {of_all}, {self._most()}{there}{self._outside()}"

    def for_state(self) -> str:
        return f"waits for {self._hosts_with_state()} to be listed again, {self._most()}: {_NO_STATE}"

    def for_survivors(self) -> str:
        late = self.survivors()
        runs = "its process runs" if len(late) == 1 else "their processes run"
        why = f"{runs}, and no other rank has called {'it' if len(late) == 1 else 'them'} silent"
        return f"waits for {named(late)} to use Horovod again, {self._most()}: {why}"

    def end(self) -> str:
        waited = f"waited {self.seconds:g} s (--elastic-timeout)"
        hosts = f"hosts that can be used have {counted(self.slots, 'slot')}"
        if not self.has_begun:
            return f"{waited} for {counted(self.needed, 'slot')}, which the start needs: {hosts}"
        if self.lacks_state:
            return f"{waited} for {self._hosts_with_state()} to be listed again: {_NO_STATE}; {hosts}"
        ready = f"{self.here} of {self.needed} {'worker' if self.needed == 1 else 'workers'} ready"
        late = f"; these did not come: {named(self.late)}" if self.late else ""
        return f"{waited}: {ready}, and {hosts}{late}{self._outside()}"

    def _most(self) -> str:
        return f"up to {self.seconds:g} s (--elastic-timeout)"

    def _hosts_with_state(self) -> str:
        gone = list(dict.fromkeys(worker.host for worker in self.without if worker.generation))
        return f"host {gone[0]}" if len(gone) == 1 else f"one of the hosts {named(gone)}"

    def _outside(self) -> str:
        has = "has" if len(self.without) == 1 else "have"
        return f"; {named(self.without)} {has} no slot any more" if self.without else ""


class Notices:
    """The messages of a job's present wait, so that none is repeated."""

    def __init__(self) -> None:
        self._missing = 0  # as last reported
        self._said: set[str] = set()  # kinds of the other two messages
        self._finish: tuple[str, float] | None = None  # first name and time; None once reported
        self._has_finished = False

    def due(self, wait: Wait, is_long: bool, is_draining: bool) -> list[str]:
        """Return the messages that are due. `is_long`: name survivors; `is_draining`: no worker starts."""
        found = []
        missing = 0 if is_draining or wait.lacks_state else max(0, wait.missing())
        if missing > self._missing:
            found.append(wait.beginning(missing))
        self._missing = missing
        if wait.lacks_state and self._is_first("state"):
            found.append(wait.for_state())
        if is_long and wait.survivors() and self._is_first("survivors"):
            found.append(wait.for_survivors())
        return found

    def _is_first(self, what: str) -> bool:
        is_first = what not in self._said
        self._said.add(what)
        return is_first

    def note_finish(self, who: str, now: float) -> None:
        if not self._has_finished:
            self._has_finished, self._finish = True, (who, now)

    def after_finish(self, before: float) -> list[str]:
        """Return the message about the first finish, if that was before this time."""
        if self._finish is None or self._finish[1] > before:
            return []
        who, self._finish = self._finish[0], None
        return [f"{who} has finished; the other ranks finish too, and no worker is started any more"]

    def forget(self) -> None:
        self._missing = 0
        self._said.clear()
