"""The route of compressors that work in rounds: tensors that they yield are summed over ranks and sent back.

The first round starts with the operation, under its name, so that the core finds ranks that disagree about
it. Each further round is requested when the last one is done and some caller waits for, polls or starts any
operation (see horovod.common.waiting). The compressor always continues on the GPU stream on which the
operation was started.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from horovod import _native as native
from horovod.common import waiting
from horovod.torch import devices, errors
from horovod.torch.compression.contract import Rounds
from horovod.torch.reduce_ops import Sum
from horovod.torch.tensors import addressable, check_served, described


@dataclass(eq=False)
class RoundsOperation:
    """The rounds of one tensor or of a group, whose members proceed together. Thread-safe.

    ``sent_bytes``: by member, the bytes that it has yielded so far.
    """

    engine: native.Engine
    wire: str  # the operation's name
    process_set_id: int
    rounds: Sequence[Rounds]  # one generator for each member
    shapes: Sequence[torch.Size]  # those of the results
    origin: devices.Origin  # the operation's
    is_completed: bool = False  # a rank lacked the gradient, and took part because others did

    def __post_init__(self) -> None:
        self.sent_bytes = [0] * len(self.rounds)
        self._results: dict[int, torch.Tensor] = {}  # of members that are finished
        self._failure: BaseException | None = None
        self._lock = threading.Lock()
        # The current round: its members, the tensors that they have yielded, and their sums.
        self._number = 0
        self._members = list(range(len(self.rounds)))
        self._sources: list[torch.Tensor] = []
        self._sums: list[torch.Tensor] = []
        self._handle: int | None = None
        self._continue()
        waiting.begin(self)

    def advance(self) -> bool:
        """Send the sums of a finished round to the compressor, and request the next. True at the end."""
        if not self._lock.acquire(blocking=False):
            return False  # another thread does it
        try:
            while self._handle is not None and self.engine.has_result(self._handle):
                handle, self._handle = self._handle, None
                result = self.engine.wait(handle)
                self.is_completed = self.is_completed or result.is_completed
                with self.origin.resumed():
                    devices.order(result, self.origin.device)
                    self._continue()
        except Exception as error:  # raised when this operation is waited for
            self._failure = error
            for rounds in self.rounds:
                rounds.close()
        finally:
            self._lock.release()
        return self._handle is None

    def note_blocked(self, may_yield: bool) -> None:
        """Report to the engine that a caller waits for this operation."""
        with self._lock:
            if self._handle is not None:
                self.engine.note_blocked(self._handle, may_yield)

    def must_yield(self) -> bool:
        """Return whether a caller that waits for this operation must continue without it."""
        with self._lock:
            return self._handle is not None and self.engine.must_yield(self._handle)

    def results(self) -> list[torch.Tensor]:
        """Return the compressor's result for each member, once it is over; raise its failure."""
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure  # breaks the reference cycle of the exception and this frame
        return [self._results[member] for member in range(len(self.rounds))]

    def _continue(self) -> None:
        """Request the sums of the tensors that the members yield next."""
        self._proceed()
        self._sums = [torch.empty_like(source) for source in self._sources]
        if self._sources:
            follows = self._number > 0
            name = f"{self.wire}.round{self._number}" if follows else self.wire
            requested = list(map(described, self._sources, self._sums))
            self._number += 1
            self._handle = self.engine.allreduce(
                name, requested, native.Reduction(Sum), self.process_set_id, follows
            )

    @torch.no_grad()
    def _proceed(self) -> None:
        """Run every member to its next yield, with the sum of what it has yielded before."""
        members, sources = [], []
        for i, member in enumerate(self._members):
            try:
                rounds = self.rounds[member]
                yielded = rounds.send(self._sums[i]) if self._number else next(rounds)
            except StopIteration as stop:
                self._results[member] = self._checked(member, stop.value)
            else:
                check_served(yielded, f"{self.wire}, round {self._number} of its compressor")
                members.append(member)
                sources.append(addressable(yielded))
                self.sent_bytes[member] += yielded.nbytes
        self._members, self._sources = members, sources

    def _checked(self, member: int, result: object) -> torch.Tensor:
        shape = self.shapes[member]
        if not isinstance(result, torch.Tensor) or result.shape != shape:
            got = f"shape {list(result.shape)}" if isinstance(result, torch.Tensor) else repr(result)
            raise errors.wrong_rounds(tensor=self.wire, got=got, shape=list(shape))
        return result
