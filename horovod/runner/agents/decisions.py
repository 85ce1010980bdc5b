"""Who decides what becomes of a job: the one seam between fixed jobs and those whose hosts come and go.

The driver tells what has happened, and carries out the actions that it gets for an answer. A *worker* is one
start of a process: a number that is never used again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from horovod.runner.agents.outcome import End
from horovod.runner.elastic.actions import Action

__all__ = ["Decisions"]


class Decisions(Protocol):
    """Events, each answered with what is to be done. No method does I/O, nor waits."""

    def begin(self) -> list[Action]: ...

    def worker_started(self, worker: int) -> list[Action]:
        """Its process is there."""

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        """It waits for its place in a generation after this one."""

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        """A worker does not hear another rank any more."""

    def worker_leaves(self, worker: int, why: str, commits: int, is_lost: bool) -> list[Action]:
        """Its process says that it ends, to be started again."""

    def worker_raised(self, worker: int) -> list[Action]:
        """Its process says that it ends by an exception of the script's own."""

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        """Its process is gone. A signal is one that ended its wrapper: its own is told as a shell does."""

    def host_lost(self, host: str, reason: str) -> list[Action]:
        """Its agent is gone, and all workers there."""

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        """All hosts that there are now, and their slots."""

    def tick(self) -> list[Action]:
        """Some tenths of a second have passed."""
