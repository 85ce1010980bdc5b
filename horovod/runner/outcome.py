"""How a job ended, from the ranks' own reports: mpirun's exit code is 0 even when a host is lost."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

_POLITE = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # how somebody, not the kernel, ends a process


@dataclass(frozen=True)
class End:
    """How a rank ended. `told`: it had been told to end before, so it is a victim and no culprit."""

    code: int = 0
    signal_number: int = 0
    told: bool = False
    reason: str = ""

    def is_success(self) -> bool:
        return self.code == 0 and self.signal_number == 0

    def exit_code(self) -> int:
        return 128 + self.signal_number if self.signal_number else self.code

    def __str__(self) -> str:
        if self.reason:
            return f"could not run: {self.reason}"
        if not self.signal_number:
            return f"exited with code {self.code}"
        return f"was killed by signal {self.signal_number} ({signal_name(self.signal_number)})"


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else "unknown"


@dataclass
class Outcome:
    """Gathers the ranks' reports; `ends` keeps the order in which they arrived."""

    ranks: int
    hosts: dict[int, str] = field(default_factory=dict)
    ends: dict[int, End] = field(default_factory=dict)

    def take(self, rank: int, report: str) -> None:
        """A report as `rank` writes it."""
        kind, _, rest = report.partition(" ")
        first, _, second = rest.partition(" ")
        if kind == "started":
            self.hosts[rank] = first
        elif kind == "killed":
            self.ends[rank] = End(signal_number=int(first), told=second == "1")
        elif kind == "refused":
            self.ends[rank] = End(code=int(first), reason=second)
        else:
            self.ends[rank] = End(code=int(first), told=second == "1")

    def have_all_started(self) -> bool:
        return len(self.hosts) == self.ranks

    def has_failure(self) -> bool:
        return any(not end.is_success() for end in self.ends.values())

    def is_success(self) -> bool:
        return len(self.ends) == self.ranks and not self.has_failure()

    def culprit(self) -> int | None:
        """The rank that failed first by itself, if one did.

        A rank that dies by a signal takes peers along, and their reports may arrive before its own.
        """
        failed = [rank for rank, end in self.ends.items() if not end.is_success() and not end.told]
        by_signal = [rank for rank in failed if self.ends[rank].signal_number not in (0, *_POLITE)]
        return next(iter(by_signal or failed), None)

    def named(self, rank: int) -> str:
        return f"rank {rank} on host {self.hosts.get(rank, 'unknown')}"

    def missing_start(self) -> str:
        return _listed([rank for rank in range(self.ranks) if rank not in self.hosts])

    def verdict(self, mpirun_code: int) -> tuple[int, str]:
        """horovodrun's exit code, and the sentence that explains it ("" for success)."""
        if self.is_success():
            return 0, ""
        culprit = self.culprit()
        if culprit is not None:
            others = "; the other ranks were ended" if self.ranks > 1 else ""
            return self.ends[culprit].exit_code(), f"{self.named(culprit)} {self.ends[culprit]}{others}"
        code = mpirun_code if 0 < mpirun_code < 256 else 1
        ended = f"mpirun {End(max(mpirun_code, 0), max(-mpirun_code, 0))}"
        if not self.hosts:
            return code, f"{ended} before any rank started; its message is above"
        return code, f"{'; '.join([*self._without_culprit(), ended])}. {_LIKELY_CAUSES}"

    def _without_culprit(self) -> list[str]:
        """What is known when no rank failed by itself."""
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


_LIKELY_CAUSES = (
    "Likely causes: a host or its network was lost; a rank left the job without MPI_Finalize; somebody ended "
    "mpirun "
    "or the process above a rank"
)


def _listed(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (", ..." if len(ranks) > 8 else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"
