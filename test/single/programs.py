"""Random programs of collectives over random process sets, and what NumPy says they must give.

A program is made once and run by every rank, in an order of its own: submissions and waits of a round are
shuffled for each rank. Values are small whole numbers, so that sums are exact in every dtype and order.
Ranks are threads or processes: all a program needs is the core's engine.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import oracle
import pytest
from hypothesis import strategies as st
from numpy.typing import NDArray
from ranks import DTYPES, MAX, MIN, NUMBERS, PRODUCT, SUM, tensor

from horovod import _native
from horovod.common.exceptions import HorovodInternalError

Array = NDArray[Any]
KINDS = (
    "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "disagreement",
)  # fmt: skip


@dataclass(frozen=True)
class Op:
    """One operation; ``seed`` fixes values, and whatever else differs by rank."""

    kind: str
    name: str
    members: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    reduce_op: int
    members_of_group: int
    seed: int

    def values(self, rank: int, which: int = 0, rows: int | None = None) -> Array:
        """What ``rank`` puts in as the group's tensor number ``which``."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        generator = np.random.default_rng([self.seed, rank, which])
        names = list(DTYPES)  # every tensor of a group has another dtype
        name = names[(names.index(self.dtype) + which) % len(names)]
        return generator.integers(0, 3, shape).astype(DTYPES[name][1])

    def rows(self, rank: int, which: int = 0) -> int:
        """First dimension of what ``rank`` gathers."""
        return random.Random(f"rows {self.seed} {rank} {which}").randrange(4)

    def splits(self, rank: int) -> list[int]:
        """Rows that ``rank`` sends to each member."""
        chooser = random.Random(f"splits {self.seed} {rank}")
        return [chooser.randrange(3) for _ in self.members]

    def root(self) -> int:
        return self.members[self.seed % len(self.members)]


@dataclass(frozen=True)
class Program:
    size: int
    sets: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[Op, ...], ...]
    lonely_allreduces: tuple[int, ...]  # by rank: how many allreduces it does before it joins
    seed: int


@st.composite
def programs(draw: st.DrawFn, size: int) -> Program:
    """Programs for ``size`` ranks."""
    subsets = st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1).map(lambda s: tuple(sorted(s)))
    sets = tuple(draw(st.lists(subsets, max_size=3, unique=True)))
    everybody = tuple(range(size))
    rounds = []
    for round_number in range(draw(st.integers(1, 3))):
        ops = []
        for number in range(draw(st.integers(1, 6))):
            shape = tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
            ops.append(
                Op(
                    kind=draw(st.sampled_from(KINDS)),
                    name=f"{round_number}.{number}",
                    members=draw(st.sampled_from([everybody, *sets])),
                    dtype=draw(st.sampled_from(list(DTYPES))),
                    shape=shape,
                    reduce_op=draw(st.sampled_from([SUM, MIN, MAX, PRODUCT])),
                    members_of_group=draw(st.integers(1, 3)),
                    seed=draw(st.integers(0, 2**20)),
                )
            )
        rounds.append(tuple(ops))
    lonely = tuple(draw(st.integers(0, 2)) for _ in range(size))
    return Program(size, sets, tuple(rounds), lonely, draw(st.integers(0, 2**20)))


@dataclass
class Pending:
    """A submitted operation, and the check of its outcome."""

    handle: int
    check: Callable[[_native.Result], None]
    fails: bool = False
    keep: list[Array] = field(default_factory=list)


class Run:
    """One rank's run of a program."""

    def __init__(self, program: Program, rank: int, engine: _native.Engine) -> None:
        self.program, self.rank, self.engine = program, rank, engine
        self.ids: dict[tuple[int, ...], int] = {tuple(range(program.size)): 0}
        self.shuffled = random.Random(f"{program.seed} {rank}")

    def run(self) -> None:
        for ranks in self.program.sets:
            self.ids[ranks] = self.engine.wait(self.engine.add_process_set(list(ranks))).sizes[0]
        for ops in self.program.rounds:
            mine = [op for op in ops if self.rank in op.members]
            self.shuffled.shuffle(mine)
            pending = [getattr(self, op.kind)(op) for op in mine]
            self.shuffled.shuffle(pending)
            for one in pending:
                self.finish(one)
        self.join()
        for ranks in reversed(self.program.sets):
            self.engine.wait(self.engine.remove_process_set(self.ids[ranks]))
        assert self.engine.process_sets() == {0: list(range(self.program.size))}

    def finish(self, pending: Pending) -> None:
        if pending.fails:
            with pytest.raises(HorovodInternalError, match="ranks disagree"):
                self.engine.wait(pending.handle)
        else:
            pending.check(self.engine.wait(pending.handle))

    def join(self) -> None:
        """Ranks do different numbers of allreduces; those that have none left count as zeros."""
        counts = self.program.lonely_allreduces
        for number in range(counts[self.rank]):
            x = np.full(3, self.rank + 1, np.float32)
            self.engine.wait(self.engine.allreduce(f"lonely.{number}", [tensor(x)], _native.Reduction()))
            want = sum(rank + 1 for rank, count in enumerate(counts) if count > number)
            np.testing.assert_array_equal(x, np.full(3, want, np.float32))
        last = self.engine.wait(self.engine.join()).sizes[0]
        assert counts[last] == max(counts)

    def allreduce(self, op: Op) -> Pending:
        mine = [op.values(self.rank, i) for i in range(op.members_of_group)]
        outputs = [np.empty_like(x) for x in mine]
        tensors = [tensor(x, out) for x, out in zip(mine, outputs, strict=True)]
        handle = self.engine.allreduce(
            op.name, tensors, _native.Reduction(op.reduce_op), self.ids[op.members]
        )

        def check(_: _native.Result) -> None:
            for i, out in enumerate(outputs):
                want = oracle.allreduce([op.values(r, i) for r in op.members], op.reduce_op)
                np.testing.assert_array_equal(out, want, err_msg=str(op))

        return Pending(handle, check, keep=[*mine, *outputs])

    def reducescatter(self, op: Op) -> Pending:
        mine = [op.values(self.rank, i) for i in range(op.members_of_group)]
        place = op.members.index(self.rank)
        parts = [np.array_split(np.arange(x.shape[0]), len(op.members))[place] for x in mine]
        outputs = [np.empty((len(rows), *x.shape[1:]), x.dtype) for x, rows in zip(mine, parts, strict=True)]
        tensors = [
            _native.Tensor(x.ctypes.data, out.ctypes.data, list(x.shape), NUMBERS[x.dtype])
            for x, out in zip(mine, outputs, strict=True)
        ]
        handle = self.engine.reducescatter(op.name, tensors, _native.Reduction(SUM), self.ids[op.members])

        def check(_: _native.Result) -> None:
            for i, (out, rows) in enumerate(zip(outputs, parts, strict=True)):
                want = oracle.allreduce([op.values(r, i) for r in op.members], SUM)[rows]
                np.testing.assert_array_equal(out, want, err_msg=str(op))

        return Pending(handle, check, keep=[*mine, *outputs])

    def allgather(self, op: Op) -> Pending:
        group = range(op.members_of_group)
        mine = [op.values(self.rank, i, op.rows(self.rank, i)) for i in group]
        tensors = [_native.Tensor(x.ctypes.data, 0, list(x.shape), NUMBERS[x.dtype]) for x in mine]
        handle = self.engine.allgather(op.name, tensors, self.ids[op.members])

        def check(result: _native.Result) -> None:
            assert result.sizes == [op.rows(r, i) for i in group for r in op.members]
            received = np.from_dlpack(result.buffer()).tobytes() if result.nbytes else b""
            start = 0
            for i in group:
                want = np.concatenate([op.values(r, i, op.rows(r, i)) for r in op.members])
                start += -start % 16
                got = np.frombuffer(received[start : start + want.nbytes], want.dtype)
                np.testing.assert_array_equal(got, want.ravel(), err_msg=str(op))
                start += want.nbytes
            assert start == result.nbytes or not received

        return Pending(handle, check, keep=mine)

    def alltoall(self, op: Op) -> Pending:
        splits = op.splits(self.rank)
        mine = op.values(self.rank, rows=sum(splits))
        view = _native.Tensor(mine.ctypes.data, 0, list(mine.shape), NUMBERS[mine.dtype])
        handle = self.engine.alltoall(op.name, view, splits, self.ids[op.members])

        def check(result: _native.Result) -> None:
            place = op.members.index(self.rank)
            assert result.sizes == [op.splits(r)[place] for r in op.members]
            want = []
            for r in op.members:
                ends = np.cumsum(op.splits(r))
                sent = op.values(r, rows=int(ends[-1]))
                want.append(sent[ends[place] - op.splits(r)[place] : ends[place]].ravel())
            self.compare(op, result, np.concatenate(want))

        return Pending(handle, check, keep=[mine])

    @staticmethod
    def compare(op: Op, result: _native.Result, want: Array) -> None:
        assert result.nbytes == want.nbytes
        if want.size:
            got = np.from_dlpack(result.buffer()).view(want.dtype)
            np.testing.assert_array_equal(got, want, err_msg=str(op))

    def broadcast(self, op: Op) -> Pending:
        mine = op.values(self.rank)
        out = np.empty_like(mine)
        handle = self.engine.broadcast(op.name, tensor(mine, out), op.root(), self.ids[op.members])

        def check(_: _native.Result) -> None:
            np.testing.assert_array_equal(out, op.values(op.root()), err_msg=str(op))

        return Pending(handle, check, keep=[mine, out])

    def barrier(self, op: Op) -> Pending:
        return Pending(self.engine.barrier(op.name, self.ids[op.members]), lambda _: None)

    def disagreement(self, op: Op) -> Pending:
        """The last member asks for another shape than the others; alone, it agrees with itself."""
        is_last = self.rank == op.members[-1]
        mine = np.ones((2, 3) if is_last else (3, 2), np.float32)
        handle = self.engine.allreduce(op.name, [tensor(mine)], _native.Reduction(), self.ids[op.members])
        return Pending(handle, lambda _: None, fails=len(op.members) > 1, keep=[mine])
