"""The route of compressors that talk in rounds: what they yield is summed over ranks, and given back to them.

The first round is under way when the operation has started, under the operation's own name, so that ranks
which disagree about it hear of each other. Every further one is requested when the last is done and somebody
waits for, polls or starts any operation (see horovod.common.waiting).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from horovod import _native as native
from horovod.common import waiting
from horovod.common.exceptions import HorovodInternalError
from horovod.torch.compression.contract import Rounds
from horovod.torch.reduce_ops import Sum
from horovod.torch.tensors import addressable, check_served, described

__all__ = ["RoundsOperation"]


class RoundsOperation:
    """The rounds of one tensor or of a group, whose members' rounds travel together. Thread-safe.

    ``shapes`` are those of the results.
    """

    def __init__(
        self,
        engine: native.Engine,
        wire: str,
        process_set_id: int,
        rounds: Sequence[Rounds],
        shapes: Sequence[torch.Size],
    ) -> None:
        self._engine = engine
        self._wire = wire
        self._process_set_id = process_set_id
        self._rounds = list(rounds)
        self._shapes = shapes
        self._results: list[torch.Tensor | None] = [None] * len(rounds)
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        # The round that is under way: members that take part in it, what they have yielded, and its sums.
        self._number = 0
        self._members = list(range(len(rounds)))
        self._sources: list[torch.Tensor] = []
        self._sums: list[torch.Tensor] = []
        self._handle: int | None = None
        self._continue()
        waiting.begin(self)

    def advance(self) -> bool:
        """Hand the sums of a round that is done to the compressor, and request the next."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread is at it
        try:
            while self._handle is not None and self._engine.poll(self._handle):
                handle, self._handle = self._handle, None
                self._engine.wait(handle)
                self._continue()
        except Exception as error:  # raised where this operation is waited for, and not some other
            self._failure = error
            for rounds in self._rounds:
                rounds.close()
        finally:
            self._lock.release()
        return self._handle is None

    def results(self) -> list[torch.Tensor]:
        """What the compressor returned for each member, once it is over. Raises what it has failed with."""
        if self._failure is not None:
            raise self._failure
        results = [result for result in self._results if result is not None]
        assert len(results) == len(self._results)
        return results

    @torch.no_grad()
    def _continue(self) -> None:
        """Run every member to its next yield, and request the sums of what they have yielded."""
        members, sources = [], []
        for i, member in enumerate(self._members):
            try:
                rounds = self._rounds[member]
                yielded = rounds.send(self._sums[i]) if self._number else next(rounds)
            except StopIteration as stop:
                self._results[member] = self._checked(member, stop.value)
            else:
                check_served(yielded, f"{self._wire}, round {self._number} of its compressor")
                members.append(member)
                sources.append(addressable(yielded))
        self._members, self._sources = members, sources
        self._sums = [torch.empty_like(source) for source in sources]
        if members:
            name = f"{self._wire}.round{self._number}" if self._number else self._wire
            requested = [described(source, sum_) for source, sum_ in zip(sources, self._sums, strict=True)]
            self._number += 1
            self._handle = self._engine.allreduce(
                name, requested, native.Reduction(Sum), self._process_set_id
            )

    def _checked(self, member: int, result: object) -> torch.Tensor:
        shape = self._shapes[member]
        if not isinstance(result, torch.Tensor) or result.shape != shape:
            got = f"shape {list(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            raise HorovodInternalError(
                f"{self._wire}: rounds() of its compressor returned {got} instead of a tensor of shape "
                f"{list(shape)}."
            )
        return result
