"""Commits of elastic training: which ones a worker keeps, and on which one the workers of a new world agree.

A commit has a number, and the same content on all ranks that hold it: ranks that train together commit
together. No rank can begin the step after a commit before all have made it, so two workers are at most one
commit apart, and if each keeps two, they share one.

A host may keep commits while it is out of the job. The others then go back, and reuse the numbers of its
newest commits for other contents. So each commit also has a *generation*, that of the world it was made in,
and only commits of the newest generation count.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from horovod.common import errors

KEPT = 2  # commits, see above


class Commits:
    """A worker's last commits by number, in the memory of its process. Not thread-safe.

    A subclass that also stores them elsewhere extends ``put`` and ``get``.
    """

    def __init__(self) -> None:
        self.generation = 0  # of commits that are put from now on
        self._contents: dict[int, Any] = {}  # by number, the oldest first
        self._generations: dict[int, int] = {}

    @property
    def numbers(self) -> list[int]:
        return list(self._contents)

    @property
    def newest(self) -> int:
        """The number of the newest commit; -1 without one."""
        return max(self._contents, default=-1)

    def newest_generation(self) -> tuple[int, list[int]]:
        """The newest generation of the commits held (0 without commits), and the numbers of its commits."""
        newest = max(self._generations.values(), default=0)
        return newest, [number for number in self._contents if self._generations[number] == newest]

    def put(self, number: int, content: Any) -> None:
        """Keep a commit that is newer than all held; drop the oldest beyond KEPT."""
        self._contents[number] = content
        self._generations[number] = self.generation
        for old in sorted(self._contents)[:-KEPT]:
            del self._contents[old], self._generations[old]

    def get(self, number: int) -> Any:
        """The commit with a number. KeyError if it is not held."""
        return self._contents[number]

    def forget_after(self, number: int) -> None:
        """Forget the commits after a number, which not all ranks have: their numbers are used again."""
        for newer in [each for each in self._contents if each > number]:
            del self._contents[newer], self._generations[newer]


@dataclass(frozen=True)
class Standing:
    # Numbers of its commits of the newest generation that it has; empty for a newcomer, never synchronised.
    held: list[int] = field(default_factory=list)
    is_kept: bool = False  # it continues from its present state, as only hosts changed; else from a commit
    process_sets: list[list[int]] = field(default_factory=list)  # ranks of sets that scripts added, in order
    generation: int = 0  # of ``held``
    function: str = ""  # the name of the one that it runs: newcomers run the script from its beginning

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def of(cls, rank: int, data: bytes) -> Standing:
        """Parse a rank's message. ValueError for anything else."""
        try:
            read = cls(**json.loads(data))
            is_right = _are_numbers(read.held) and type(read.is_kept) is bool
            is_right &= isinstance(read.process_sets, list) and all(map(_are_numbers, read.process_sets))
            is_right &= _are_numbers([read.generation]) and type(read.function) is str
        except (ValueError, TypeError, RecursionError):
            is_right = False
        if not is_right:
            raise errors.not_understood(ranks=[rank], got=data[:80], forming="a commit")
        return read


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


@dataclass(frozen=True)
class Agreement:
    """The conclusion from all standings. Each rank of a new world computes it, with the same result.

    Ranks with older commits than the newest generation count as newcomers, the others as survivors.
    """

    root: int  # the rank whose state all get: the first that has it; 0 if all are newcomers
    # The commit to continue from: the newest that all survivors hold. It is the newest of any survivor if
    # they share none (a host kept commits while it was out), or if ``is_kept``; 0 if all are newcomers.
    number: int
    is_kept: bool  # survivors continue from their present state
    has_newcomers: bool  # some rank must receive the state
    process_sets: list[list[int]]  # of root
    generation: int = 0  # of that commit; 0 if all are newcomers
    function: str = ""  # the one that root runs: a rank in another function cannot continue


def agreed(standings: Sequence[Standing]) -> Agreement:
    generation = max((one.generation for one in standings if one.held), default=0)
    survivors = [rank for rank, one in enumerate(standings) if one.held and one.generation == generation]
    if not survivors:
        return Agreement(0, 0, True, True, [], function=standings[0].function)
    held = [set(standings[rank].held) for rank in survivors]
    common = set.intersection(*held)
    is_kept = all(standings[rank].is_kept for rank in survivors)
    number = max(set.union(*held) if is_kept or not common else common)
    root = next(rank for rank in survivors if is_kept or number in standings[rank].held)
    its, has_newcomers = standings[root], len(survivors) < len(standings)
    return Agreement(root, number, is_kept, has_newcomers, its.process_sets, generation, its.function)
