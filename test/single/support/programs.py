"""Random programs of collectives over random process sets, with NumPy's expected results.

Every rank runs the same program in a different order: each rank shuffles the submissions and waits of a
round. Values are small whole numbers, so sums are exact in every dtype and order, and with some codecs; other
codecs have an error bound. Ranks are threads or processes: a program needs only the core's engine, and for
operations on a GPU its memory (``GpuMemory`` of emulated_gpu.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import oracle
from hypothesis import strategies as st
from numpy.typing import NDArray
from ranks import DTYPES, MAX, MIN, PRODUCT, SUM, source_only, tensor
from refusals import refused

from horovod import _native
from horovod.common.exceptions import Disagreement

Array = NDArray[Any]
KINDS = (
    "allreduce", "allgather", "broadcast", "alltoall", "reducescatter", "barrier", "disagreement",
)  # fmt: skip
FLOATS = ("float16", "bfloat16", "float32", "float64")  # dtypes that codecs support
# Rotated codecs have no error bound per element.
CODECS = (
    "bit16", "fp16", "bf16", "bit8/128", "bit8/32/e5m2/stochastic", "bit8/32/e3m4", "int8/32/stochastic",
    "int4/128",
)  # fmt: skip
LARGEST = 2  # value in a rank's input


@dataclass(frozen=True)
class Op:
    """One operation; ``seed`` determines values and all other differences between ranks."""

    kind: str
    name: str
    members: tuple[int, ...]
    dtype: str
    shape: tuple[int, ...]
    reduce_op: int
    members_of_group: int
    seed: int
    on_gpu: bool = False
    codec: str = ""

    def values(self, rank: int, which: int = 0, rows: int | None = None) -> Array:
        """The input of ``rank`` for the group's tensor number ``which``."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        generator = np.random.default_rng([self.seed, rank, which])
        names = list(DTYPES)  # every tensor of a group has another dtype
        name = names[(names.index(self.dtype) + which) % len(names)]
        return generator.integers(0, LARGEST + 1, shape).astype(DTYPES[name][1])

    def rows(self, rank: int, which: int = 0) -> int:
        """First dimension of the tensor that ``rank`` gathers."""
        return random.Random(f"rows {self.seed} {rank} {which}").randrange(4)

    def splits(self, rank: int) -> list[int]:
        """Rows that ``rank`` sends to each member."""
        chooser = random.Random(f"splits {self.seed} {rank}")
        return [chooser.randrange(3) for _ in self.members]

    def root(self) -> int:
        return self.members[self.seed % len(self.members)]

    def is_in_place(self) -> bool:
        return self.seed % 2 == 1

    def reduction(self) -> _native.Reduction:
        codec = _native.codec_named(self.codec) if self.codec else None
        return _native.Reduction(self.reduce_op, codec=codec)


@dataclass(frozen=True)
class Program:
    size: int
    sets: tuple[tuple[int, ...], ...]
    rounds: tuple[tuple[Op, ...], ...]
    lonely_allreduces: tuple[int, ...]  # by rank: number of allreduces before its join
    seed: int
    joins_on_gpu: bool = False


@st.composite
def operations(draw: st.DrawFn, name: str, sets: list[tuple[int, ...]], has_gpus: bool) -> Op:
    kind = draw(st.sampled_from(KINDS))
    dtype = draw(st.sampled_from(list(DTYPES)))
    reduce_op = SUM if kind == "reducescatter" else draw(st.sampled_from([SUM, MIN, MAX, PRODUCT]))
    has_codes = kind in ("allreduce", "reducescatter") and dtype in FLOATS and reduce_op == SUM
    return Op(
        kind=kind,
        name=name,
        members=draw(st.sampled_from(sets)),
        dtype=dtype,
        shape=tuple(draw(st.lists(st.integers(0, 5), min_size=1, max_size=3))),
        reduce_op=reduce_op,
        members_of_group=draw(st.integers(1, 3)),
        seed=draw(st.integers(0, 2**20)),
        on_gpu=has_gpus and draw(st.booleans()),
        codec=draw(st.sampled_from(["", *CODECS])) if has_codes else "",
    )


@st.composite
def programs(
    draw: st.DrawFn, size: int, has_gpus: bool = False, begins_with: Mapping[str, Any] | None = None
) -> Program:
    """Programs for ``size`` ranks; ``begins_with``: fixed attributes of the first operation."""
    subsets = st.sets(st.integers(0, size - 1), min_size=1, max_size=size - 1).map(lambda s: tuple(sorted(s)))
    sets = tuple(draw(st.lists(subsets, max_size=3, unique=True)))
    anybody = [tuple(range(size)), *sets]
    rounds = []
    for round_number in range(draw(st.integers(1, 3))):
        numbers = range(draw(st.integers(1, 6)))
        rounds.append([draw(operations(f"{round_number}.{number}", anybody, has_gpus)) for number in numbers])
    rounds[0][0] = replace(rounds[0][0], **begins_with or {})
    lonely = tuple(draw(st.integers(0, 2)) for _ in range(size))
    return Program(
        size=size,
        sets=sets,
        rounds=tuple(tuple(ops) for ops in rounds),
        lonely_allreduces=lonely,
        seed=draw(st.integers(0, 2**20)),
        joins_on_gpu=has_gpus and draw(st.booleans()),
    )


class Memory(Protocol):
    """The memory of an operation's tensors."""

    def put(self, values: Array) -> Any:
        """A tensor with these values."""

    def view(self, source: Any, destination: Any = None) -> _native.Tensor:
        """The core's view; without a destination the core allocates the result."""

    def values(self, result: _native.Result, x: Any) -> Array:
        """A tensor's values after the operation with that result."""

    def received(self, result: _native.Result) -> bytes:
        """The bytes that the core has allocated."""


class CpuMemory:
    def put(self, values: Array) -> Array:
        return values.copy()

    def view(self, source: Array, destination: Array | None = None) -> _native.Tensor:
        return source_only(source) if destination is None else tensor(source, destination)

    def values(self, result: _native.Result, x: Array) -> Array:
        return x

    def received(self, result: _native.Result) -> bytes:
        return np.from_dlpack(result.buffer()).tobytes() if result.nbytes else b""


@dataclass
class Pending:
    """A submitted operation, and the check of its outcome."""

    handle: int
    check: Callable[[_native.Result], None]
    fails: bool = False
    keep: list[Any] = field(default_factory=list)


class Run:
    """One rank's run of a program; ``on_gpu``: the memory of its GPU, if it has one."""

    def __init__(
        self, program: Program, rank: int, engine: _native.Engine, on_gpu: Memory | None = None
    ) -> None:
        self.program, self.rank, self.engine = program, rank, engine
        self.on_cpu, self.on_gpu = CpuMemory(), on_gpu
        self.ids: dict[tuple[int, ...], int] = {tuple(range(program.size)): 0}
        self.shuffled = random.Random(f"{program.seed} {rank}")
        self.inexact: dict[str, bytes] = {}  # results that are equal on all ranks, by name

    def memory(self, on_gpu: bool) -> Memory:
        if not on_gpu:
            return self.on_cpu
        assert self.on_gpu is not None, "the program is for ranks with GPUs"
        return self.on_gpu

    def run(self) -> dict[str, bytes]:
        """Run; return results of compressed allreduces: not exact, but equal on all ranks."""
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
        return self.inexact

    def finish(self, pending: Pending) -> None:
        if pending.fails:
            with refused(Disagreement, "disagree"):
                self.engine.wait(pending.handle)
        else:
            pending.check(self.engine.wait(pending.handle))

    def join(self) -> None:
        """Join after different numbers of allreduces; ranks that have joined count as zeros."""
        counts = self.program.lonely_allreduces
        if (
            self.program.joins_on_gpu
        ):  # a rank that has not used its GPU would join with the GPU of its local rank
            self.reduce_alone("shows its GPU", self.program.size)
        for number in range(counts[self.rank]):
            want = sum(rank + 1 for rank, count in enumerate(counts) if count > number)
            self.reduce_alone(f"lonely.{number}", want, self.rank + 1)
        last = self.engine.wait(self.engine.join()).sizes[0]
        assert counts[last] == max(counts)

    def reduce_alone(self, name: str, want: float, own: float = 1) -> None:
        memory = self.memory(self.program.joins_on_gpu)
        x = memory.put(np.full(3, own, np.float32))
        result = self.engine.wait(self.engine.allreduce(name, [memory.view(x, x)], _native.Reduction()))
        np.testing.assert_array_equal(memory.values(result, x), np.full(3, want, np.float32))

    def allreduce(self, op: Op) -> Pending:
        memory = self.memory(op.on_gpu)
        mine = [memory.put(op.values(self.rank, i)) for i in range(op.members_of_group)]
        outputs = mine
        if not op.is_in_place():
            outputs = [memory.put(np.zeros_like(op.values(self.rank, i))) for i in range(op.members_of_group)]
        tensors = [memory.view(x, out) for x, out in zip(mine, outputs, strict=True)]
        handle = self.engine.allreduce(op.name, tensors, op.reduction(), self.ids[op.members])

        def check(result: _native.Result) -> None:
            for i, out in enumerate(outputs):
                got = memory.values(result, out)
                self.compare_sum(op, i, got, slice(None), 3 if op.on_gpu else 2)
                if op.codec:
                    self.inexact[f"{op.name} {i}"] = got.tobytes()

        return Pending(handle, check, keep=[*mine, *outputs])

    def reducescatter(self, op: Op) -> Pending:
        memory = self.memory(op.on_gpu)
        values = [op.values(self.rank, i) for i in range(op.members_of_group)]
        place = op.members.index(self.rank)
        parts = [np.array_split(np.arange(x.shape[0]), len(op.members))[place] for x in values]
        mine = [memory.put(x) for x in values]
        outputs = [memory.put(np.zeros_like(x[rows])) for x, rows in zip(values, parts, strict=True)]
        tensors = [memory.view(x, out) for x, out in zip(mine, outputs, strict=True)]
        handle = self.engine.reducescatter(op.name, tensors, op.reduction(), self.ids[op.members])

        def check(result: _native.Result) -> None:
            for i, (out, rows) in enumerate(zip(outputs, parts, strict=True)):
                self.compare_sum(op, i, memory.values(result, out), rows, 1)

        return Pending(handle, check, keep=[*mine, *outputs])

    @staticmethod
    def compare_sum(op: Op, which: int, got: Array, rows: Any, quantisations: int) -> None:
        """Check tensor ``which`` of the group, which is quantised at most ``quantisations`` times."""
        xs = [op.values(r, which) for r in op.members]
        want = oracle.allreduce(xs, op.reduce_op)[rows]
        has_codes = op.codec and any(got.dtype == DTYPES[name][1] for name in FLOATS)
        if not has_codes or oracle.loses_nothing(op.codec, LARGEST * len(xs)):
            np.testing.assert_array_equal(got, want, err_msg=str(op))
            return
        bound = oracle.quantisation_bound(xs, op.codec, quantisations)[rows]
        error = np.abs(got.astype(np.float64) - want.astype(np.float64))
        assert (error <= bound).all(), f"{op}: {got} is further than {bound} from {want}"

    def allgather(self, op: Op) -> Pending:
        memory, group = self.memory(op.on_gpu), range(op.members_of_group)
        mine = [memory.put(op.values(self.rank, i, op.rows(self.rank, i))) for i in group]
        handle = self.engine.allgather(op.name, [memory.view(x) for x in mine], self.ids[op.members])

        def check(result: _native.Result) -> None:
            assert result.sizes == [op.rows(r, i) for i in group for r in op.members]
            got, end = memory.received(result), 0
            for i in group:
                want = b"".join(op.values(r, i, op.rows(r, i)).tobytes() for r in op.members)
                start = end + -end % 16
                end = start + len(want)
                assert got[start:end] == want, str(op)
            assert end == len(got)

        return Pending(handle, check, keep=mine)

    def alltoall(self, op: Op) -> Pending:
        memory, splits = self.memory(op.on_gpu), op.splits(self.rank)
        mine = memory.put(op.values(self.rank, rows=sum(splits)))
        handle = self.engine.alltoall(op.name, memory.view(mine), splits, self.ids[op.members])

        def check(result: _native.Result) -> None:
            place = op.members.index(self.rank)
            assert result.sizes == [op.splits(r)[place] for r in op.members]
            want = b""
            for r in op.members:
                end = sum(op.splits(r)[: place + 1])
                want += op.values(r, rows=sum(op.splits(r)))[end - op.splits(r)[place] : end].tobytes()
            assert memory.received(result) == want, str(op)

        return Pending(handle, check, keep=[mine])

    def broadcast(self, op: Op) -> Pending:
        memory = self.memory(op.on_gpu)
        mine = memory.put(op.values(self.rank))
        out = mine if op.is_in_place() else memory.put(np.zeros_like(op.values(self.rank)))
        handle = self.engine.broadcast(op.name, memory.view(mine, out), op.root(), self.ids[op.members])

        def check(result: _native.Result) -> None:
            np.testing.assert_array_equal(memory.values(result, out), op.values(op.root()), err_msg=str(op))

        return Pending(handle, check, keep=[mine, out])

    def barrier(self, op: Op) -> Pending:
        return Pending(self.engine.barrier(op.name, self.ids[op.members]), lambda _: None)

    def disagreement(self, op: Op) -> Pending:
        """The last member requests a different shape, or is the only one with its tensor in CPU memory.

        A single member agrees with itself.
        """
        is_last = self.rank == op.members[-1]
        is_about_place = op.on_gpu and op.is_in_place()
        memory = self.memory(op.on_gpu and not (is_about_place and is_last))
        x = memory.put(np.ones((2, 3) if is_last and not is_about_place else (3, 2), np.float32))
        view = memory.view(x, x)
        handle = self.engine.allreduce(op.name, [view], _native.Reduction(), self.ids[op.members])
        return Pending(handle, lambda _: None, fails=len(op.members) > 1, keep=[x])
