"""The route of compressors that talk in rounds: what they yield is summed over ranks, and given back to them.

The first round is under way when the operation has started, under the operation's own name, so that ranks
which disagree about it hear of each other. Every further one is requested when the last is done and somebody
waits for, polls or starts any operation (see horovod.common.waiting). Whoever that is, and on whatever
stream of a GPU, the compressor goes on on the one where the operation was started.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch

from horovod import _native as native
from horovod.common import waiting
from horovod.torch import devices, errors
from horovod.torch.compression.contract import Rounds
from horovod.torch.reduce_ops import Sum
from horovod.torch.tensors import addressable, check_served, described

__all__ = ["RoundsOperation", "RunningRounds"]


class RunningRounds:
    """The rounds of one tensor or of a group, whose members go on together.

    ``label`` says in errors which operation it is; ``shapes`` are those of the results.
    Attribute ``sent_bytes``: how much each member has yielded so far.
    """

    def __init__(self, label: str, rounds: Sequence[Rounds], shapes: Sequence[torch.Size]) -> None:
        self._label = label
        self._rounds = list(rounds)
        self._shapes = shapes
        self.sent_bytes = [0] * len(rounds)
        self._results: list[torch.Tensor | None] = [None] * len(rounds)
        self._members = list(range(len(rounds)))  # that take part in the round that is under way
        self._number = 0

    @torch.no_grad()
    def proceed(self, sums: Sequence[torch.Tensor] = ()) -> list[torch.Tensor]:
        """Run every member to its next yield, with the sums of what they have yielded before.

        Returns what those yielded that go on, contiguous; nothing when all are over.
        """
        members, sources = [], []
        for i, member in enumerate(self._members):
            try:
                rounds = self._rounds[member]
                yielded = rounds.send(sums[i]) if self._number else next(rounds)
            except StopIteration as stop:
                self._results[member] = self._checked(member, stop.value)
            else:
                check_served(yielded, f"{self._label}, round {self._number} of its compressor")
                members.append(member)
                sources.append(addressable(yielded))
                self.sent_bytes[member] += yielded.nbytes
        self._members = members
        self._number += 1
        return sources

    def results(self) -> list[torch.Tensor]:
        """The compressor's result for each member, once all are over."""
        results = [result for result in self._results if result is not None]
        assert len(results) == len(self._results)
        return results

    def close(self) -> None:
        """They will not go on."""
        for rounds in self._rounds:
            rounds.close()

    def _checked(self, member: int, result: object) -> torch.Tensor:
        shape = self._shapes[member]
        if not isinstance(result, torch.Tensor) or result.shape != shape:
            got = f"shape {list(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            raise errors.wrong_rounds(tensor=self._label, got=got, shape=list(shape))
        return result


class RoundsOperation:
    """Rounds whose sums the engine makes. Thread-safe. ``origin`` is the operation's."""

    def __init__(
        self,
        engine: native.Engine,
        wire: str,
        process_set_id: int,
        rounds: Sequence[Rounds],
        shapes: Sequence[torch.Size],
        origin: devices.Origin,
    ) -> None:
        self._engine = engine
        self._origin = origin
        self._wire = wire
        self._process_set_id = process_set_id
        self._rounds = RunningRounds(wire, rounds, shapes)
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        # The round that is under way: what was yielded, and its sums.
        self._number = 0
        self._sources: list[torch.Tensor] = []
        self._sums: list[torch.Tensor] = []
        self._handle: int | None = None
        self.is_completed = False
        self._continue()
        waiting.begin(self)

    def advance(self) -> bool:
        """Hand the sums of a round that is done to the compressor, and request the next."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread is at it
        try:
            while self._handle is not None and self._engine.has_result(self._handle):
                handle, self._handle = self._handle, None
                result = self._engine.wait(handle)
                self.is_completed = self.is_completed or result.is_completed
                with self._origin.resumed():
                    devices.order(result, self._origin.device)
                    self._continue()
        except Exception as error:  # raised where this operation is waited for, and not some other
            self._failure = error
            self._rounds.close()
        finally:
            self._lock.release()
        return self._handle is None

    def note_blocked(self, may_yield: bool) -> None:
        """A caller waits for this operation."""
        with self._lock:
            if self._handle is not None:
                self._engine.note_blocked(self._handle, may_yield)

    def must_yield(self) -> bool:
        """Whether a caller that waits for this operation has to go on without it."""
        with self._lock:
            return self._handle is not None and self._engine.must_yield(self._handle)

    def results(self) -> list[torch.Tensor]:
        """The compressor's result for each member, once it is over; or its failure is raised."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # it holds this frame, which would hold it until a collection
        return self._rounds.results()

    @property
    def sent_bytes(self) -> list[int]:
        """The tensors that each member has yielded so far."""
        return self._rounds.sent_bytes

    def _continue(self) -> None:
        """Request the sums of what the members yield next."""
        self._sources = self._rounds.proceed(self._sums)
        self._sums = [torch.empty_like(source) for source in self._sources]
        if self._sources:
            follows = self._number > 0
            name = f"{self._wire}.round{self._number}" if follows else self._wire
            requested = [
                described(source, sum_) for source, sum_ in zip(self._sources, self._sums, strict=True)
            ]
            self._number += 1
            self._handle = self._engine.allreduce(
                name, requested, native.Reduction(Sum), self._process_set_id, follows
            )
