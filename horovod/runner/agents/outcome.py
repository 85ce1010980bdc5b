"""How a job ended, from the reports of its ranks.

A failing rank makes others fail, and reports arrive in any order. So the reports show which rank is to blame,
not clocks. A *follower*'s operation failed because of others; a *victim* was asked to end. The blame goes to
the first of these that exists:

    1. a rank that was stopped (SIGSTOP and the like) before any failed, or that was missing in hvd.init()
    2. a rank whose wrapper was killed, so that it cannot report
    3. the rank that failed first, and is neither a follower nor a victim
    4. a rank that ended with code 0 before hvd.init(), while others wait there: its host may be gone by now
    5. a silent host
    6. a rank that ended with code 0 while others waited for it
    7. the rank that followers name
    8. the first follower
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from horovod.common import time_limits
from horovod.runner.processes import ENDING

_JOINING = {"joining", "joined"}


@dataclass(frozen=True)
class End:
    """How a rank ended. ValueError for a code or signal that no process ends with."""

    code: int = 0
    signal_number: int = 0
    told: bool = False  # it had been asked to end before, so it is a victim and not a culprit
    reason: str = ""  # why it could not run
    raised: bool = False  # by an uncaught exception of the user's code that other ranks did not cause

    def __post_init__(self) -> None:
        if not (0 <= self.code <= 255 and 0 <= self.signal_number <= 127):
            raise ValueError(f"no process ends with code {self.code} or signal {self.signal_number}")

    def is_success(self) -> bool:
        return self.code == 0 and self.signal_number == 0

    def exit_code(self) -> int:
        return 128 + self.signal_number if self.signal_number else self.code

    def passed_on(self) -> str:
        """Describe a rank's end by its wrapper's: code 128 + n is the script's signal n, as in shells."""
        number = self.code - 128
        by_signal = number in set(signal.Signals) and not self.raised
        return str(End(signal_number=number) if by_signal else self)

    def __str__(self) -> str:
        if self.reason:
            return f"could not run: {self.reason}"
        if not self.signal_number:
            by = " of an exception that nothing caught" if self.raised else ""
            return f"exited with code {self.code}{by}"
        often = ", as happens when /dev/shm is full" if self.signal_number == signal.SIGBUS else ""
        return f"was killed by signal {self.signal_number} ({signal_name(self.signal_number)}{often})"


# A report of an end -> the End, by its two words.
_ENDS: dict[str, Callable[[int, str], End]] = {
    "ended": lambda code, told: End(code=code, told=told == "1"),
    "killed": lambda number, told: End(signal_number=number, told=told == "1"),
    "refused": lambda code, reason: End(code=code, reason=reason),
}


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unknown"


@dataclass
class Outcome:
    """The ranks' reports; dictionaries keep the order of arrival."""

    ranks: int
    hosts: dict[int, str] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)
    notes: dict[int, set[str]] = field(default_factory=dict)  # words of each rank's (`horovod.common.notes`)
    lost: set[str] = field(default_factory=set)  # hosts that were found silent
    unreported: dict[int, int] = field(default_factory=dict)  # ranks whose wrapper was killed, and the signal
    is_over: bool = False  # the job is being ended
    _left: dict[int, None] = field(default_factory=dict)  # announced it, or ended with code 0
    _follows: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)  # whom, why
    _stopped: dict[int, int] = field(default_factory=dict)  # signal
    _outside: set[int] = field(default_factory=set)  # called hvd.shutdown(), or finished the script

    def take(self, rank: int, report: str) -> None:
        """Take a report as `rank` writes it. ValueError for a malformed one."""
        kind, _, rest = report.partition(" ")
        first, _, second = rest.partition(" ")
        if kind == "started":
            self.hosts[rank] = first
        elif kind == "note":
            self._take_note(rank, first, second)
        elif kind == "stopped":
            if not (self.has_failure() or self._some_wait_for_who_left()):
                self._stopped[rank] = int(first)
        elif kind == "continued":
            if not (self.is_over or self.has_failure()):
                self._stopped.pop(rank, None)
        elif kind == "lost" and first:  # with it the wrapper, which cannot report
            self.lost.add(first)
        elif kind == "unreported":  # this signal killed the wrapper
            self.unreported[rank] = End(signal_number=int(first)).signal_number
        elif kind in _ENDS:
            end = self.ends[rank] = _ENDS[kind](int(first), second)
            if kind == "ended" and end.is_success():
                self._left.setdefault(rank)
        else:
            raise ValueError(f"rank {rank} reported {report!r}")

    def _take_note(self, rank: int, word: str, rest: str) -> None:
        self.notes.setdefault(rank, set()).add(word)
        if word in ("outside", "leaving"):
            self._outside.add(rank)
        elif word == "inside":
            self._outside.discard(rank)
        if word == "leaving" and rank not in self._follows:
            self._left.setdefault(rank)
        elif word == "follows":
            whom, _, why = rest.partition(" ")
            ranks = tuple(int(name) for name in whom.split(",") if name.isdigit() and int(name) < self.ranks)
            self._follows.setdefault(rank, (ranks, why))

    def have_all_started(self) -> bool:
        return len(self.hosts) == self.ranks

    def has_failure(self) -> bool:
        return any(not end.is_success() for end in self.ends.values())

    def is_success(self) -> bool:
        return len(self.ends) == self.ranks and not self.has_failure()

    def has_joined(self, rank: int) -> bool:
        """Whether the rank has called hvd.init(), so that its notes are complete."""
        return "joining" in self.notes.get(rank, ())

    def failed_by_itself(self) -> int | None:
        """Return the rank that failed first, and neither followed others nor was asked to end.

        Ranks without notes may follow others unnoticed, so a rank that died by a signal comes before them.
        """
        failed = [rank for rank, end in self.ends.items() if not (end.is_success() or end.told)]
        failed = [rank for rank in failed if rank not in self._follows]
        if not failed or self.has_joined(failed[0]):
            return next(iter(failed), None)
        by_signal = [rank for rank in failed if self.ends[rank].signal_number not in (0, *ENDING)]
        return (by_signal or failed)[0]

    def has_settled(self) -> bool:
        """Whether no further report can change which rank is to blame."""
        return len(self.ends) == self.ranks or self.failed_by_itself() is not None

    def culprit(self) -> int | None:
        return self._blamed()[0]

    def _blamed(self) -> tuple[int | None, str]:
        """Return (rank, its deed); (None, "") if no rank is to blame."""
        for rank, number in self._stopped.items():
            return rank, f"was stopped by signal {number} ({signal_name(number)}), and others waited for it"
        for rank, number in self.unreported.items():
            if rank in self.hosts and rank not in self.ends:
                above = f"horovodrun's process above it was killed by signal {number} ({signal_name(number)})"
                return rank, f"did not report how it ended: {above}"
        by_itself = self.failed_by_itself()
        if by_itself is not None:
            return by_itself, str(self.ends[by_itself])
        followers = [rank for rank in self.ends if rank in self._follows and not self.ends[rank].told]
        gone = [self._absent(), self._deserters(followers)]
        if self._some_wait_for_who_left():
            gone.reverse()
        for rank, deed in chain(*gone, self._accused(followers)):
            return rank, deed
        return (followers[0], str(self.ends[followers[0]])) if followers else (None, "")

    def _absent(self) -> Iterator[tuple[int, str]]:
        for rank, host in sorted(self.hosts.items()):
            if host in self.lost and rank not in self.ends:
                verb = "was" if len(self._lost_with(rank)) == 1 else "were"
                yield rank, f"{verb} lost: that host, or the network to it, has failed"

    def _deserters(self, followers: list[int]) -> Iterator[tuple[int, str]]:
        for rank in self._left:
            if rank not in followers and self._has_deserted(rank, bool(followers)):
                yield rank, self._how_it_left(rank)

    def _accused(self, followers: list[int]) -> Iterator[tuple[int, str]]:
        for follower in followers:
            whom, why = self._follows.get(follower, ((), ""))
            for rank in whom:
                if rank not in followers:
                    yield rank, f"did not go on (rank {follower} says: {why})"

    def _has_deserted(self, rank: int, has_followers: bool) -> bool:
        """Whether others waited for a rank that ended with code 0."""
        if has_followers or (self._waiting_for_start() and not self.has_joined(rank)):
            return True
        # By os._exit(0), for example.
        return self.has_joined(rank) and "leaving" not in self.notes[rank]

    def _how_it_left(self, rank: int) -> str:
        waiting = self._waiting_for_start()
        if waiting and not self.has_joined(rank):
            return f"ended with code 0 before hvd.init(), and {_listed(waiting)} cannot begin without it"
        with_code = " with code 0" if self.ends.get(rank, End()).code == 0 else ""
        return f"ended{with_code} before the others were done with it"

    def _waiting_for_start(self) -> list[int]:
        return sorted(rank for rank, words in self.notes.items() if words & _JOINING == {"joining"})

    def _some_wait_for_who_left(self) -> bool:
        """Whether ranks are in hvd.init(), and another one has ended without calling it."""
        return bool(self._waiting_for_start()) and any(not self.has_joined(rank) for rank in self._left)

    def waits_in_vain(self) -> float:
        """Return how many seconds ranks may stay in hvd.init() after another ended or was stopped; or 0."""
        if self._some_wait_for_who_left():
            return time_limits.VAIN_WAIT
        waiting = self._waiting_for_start()
        is_stopped = any("joined" not in self.notes.get(rank, ()) for rank in self._stopped)
        return time_limits.STOPPED_WAIT if is_stopped and set(waiting) - set(self._stopped) else 0.0

    def lingering(self) -> list[int]:
        """Return the ranks, sorted, that alone keep the job alive: they are stopped, or have left the job.

        All others have ended, or have nothing left to do.
        """
        if self.is_over or self.has_failure() or not self.have_all_started():
            return []
        here = sorted(rank for rank in self.hosts if rank not in self.ends and rank not in self.unreported)
        late = [rank for rank in here if rank in self._stopped or "done" not in self.notes.get(rank, ())]
        late = late or here
        if len(late) == len(self.hosts) or not all(r in self._stopped or r in self._outside for r in late):
            return []
        return late

    def overdue(self, ranks: Sequence[int], seconds: float) -> str:
        """Return why these ranks were ended after so many seconds, and the remedy."""
        said = [f"{self.named(rank)} {self._how_it_lingers(rank)}" for rank in ranks[:8]]
        more = f", and {len(ranks) - 8} more" if len(ranks) > 8 else ""
        return (
            f"{', '.join(said)}{more}; all other ranks have ended, and it was ended after {seconds:g} s "
            "without any work (--exit-timeout, HOROVOD_EXIT_TIMEOUT; 0: never)"
        )

    def _how_it_lingers(self, rank: int) -> str:
        if (number := self._stopped.get(rank)) is not None:
            return f"was stopped by signal {number} ({signal_name(number)})"
        return "did not end after it had left the job (hvd.shutdown(), or the end of its script)"

    def named(self, rank: int) -> str:
        return f"rank {rank} on host {self.hosts.get(rank, 'unknown')}"

    def _lost_with(self, rank: int) -> list[int]:
        """Return this rank; if its host was lost, all of the host's ranks that have not ended."""
        host = self.hosts.get(rank)
        if host not in self.lost or rank in self.ends:
            return [rank]
        return [one for one, name in sorted(self.hosts.items()) if name == host and one not in self.ends]

    def missing_start(self) -> str:
        return _listed([rank for rank in range(self.ranks) if rank not in self.hosts])

    def conclusion(self, code: int) -> tuple[int, str]:
        """Return horovodrun's exit code and the message, "" for success. `code`: of the job."""
        if self.is_success():
            return 0, ""
        culprit, deed = self._blamed()
        if culprit is not None:
            others = "; the other ranks were ended" if self.ranks > 1 else ""
            end = self.ends.get(culprit, End())
            where = f"on host {self.hosts.get(culprit, 'unknown')}"
            code = 1 if end.told else end.exit_code() or 1
            return code, f"{_listed(self._lost_with(culprit))} {where} {deed}{others}"
        if self.lost:
            hosts = ", ".join(sorted(self.lost))
            return 1, f"host {hosts} was lost before its ranks began; all ranks were ended"
        if not self.hosts:
            return code or 1, "no rank started; the reason is above"
        return code or 1, f"{'; '.join(self._without_culprit())}. {_LIKELY_CAUSES}"

    def _without_culprit(self) -> list[str]:
        """Describe an outcome in which no rank failed by itself."""
        silent = [rank for rank in range(self.ranks) if rank not in self.ends]
        done = [rank for rank, end in self.ends.items() if end.is_success()]
        told = [rank for rank in self.ends if rank not in done]
        where = ", ".join(sorted({self.hosts.get(rank, "a host unknown") for rank in silent}))
        said = {
            f"on {where} did not report how it ended": silent,
            "ended with code 0 before the others were done": done,
            "ended when told to": told,
        }
        return [f"{_listed(sorted(ranks))} {what}" for what, ranks in said.items() if ranks]


@dataclass
class ElasticOutcome(Outcome):
    """The outcome of an elastic job: its membership machine decides when and why it ends.

    A rank is a worker's number here, which is never used again.
    """

    why: str = ""

    def named(self, rank: int) -> str:
        return f"worker {rank} on host {self.hosts.get(rank, 'unknown')}"

    def have_all_started(self) -> bool:
        return True

    def has_failure(self) -> bool:
        return False

    def lingering(self) -> list[int]:
        """As in the base class, after the first success. Workers leave worlds and join others, so only the
        end of the script counts as leaving the job.
        """
        self._outside = {rank for rank in self._outside if "leaving" in self.notes[rank]}
        return super().lingering() if any(end.is_success() for end in self.ends.values()) else []

    def waits_in_vain(self) -> float:
        return 0.0

    def culprit(self) -> int | None:
        return None

    def conclusion(self, code: int) -> tuple[int, str]:
        return code, self.why


_LIKELY_CAUSES = (
    "Likely causes: a host or its network was lost; somebody ended horovodrun's process above a rank"
)


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
