"""Reductions whose messages a test carries between ranks: one object of each rank, all in this thread."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray
from ranks import AVERAGE, tensor

from horovod import _native

Array = NDArray[Any]
Bytes = NDArray[np.uint8]
UNWRITTEN = 0xA5
ALIGN = 16


@dataclass
class Part:
    """Tensors of one dtype that are reduced alike: of each name, every rank's values."""

    tensors: dict[str, list[Array]]
    codec: str = ""
    op: int = AVERAGE
    prescale: float = 1.0
    postscale: float = 1.0

    def reduction(self) -> _native.Reduction:
        codec = _native.codec_named(self.codec) if self.codec else None
        return _native.Reduction(self.op, self.prescale, self.postscale, codec)

    def of(self, rank: int) -> list[Array]:
        return [values[rank] for values in self.tensors.values()]


class Block:
    """Messages one after the other, at a multiple of 16 bytes of CPU memory and no more; guarded."""

    def __init__(self, content: Bytes) -> None:
        self._all = np.full(content.size + 4 * ALIGN, UNWRITTEN, np.uint8)
        self._begin = -self._all.ctypes.data % (2 * ALIGN) + ALIGN
        self._count = content.size
        self._all[self._begin : self._begin + content.size] = content
        self.address = self._all.ctypes.data + self._begin

    def read(self) -> Bytes:
        """What is there now; nothing around it has changed."""
        end = self._begin + self._count
        assert (self._all[: self._begin] == UNWRITTEN).all(), "written before the messages"
        assert (self._all[end:] == UNWRITTEN).all(), "written past the messages"
        return self._all[self._begin : end].copy()


@dataclass
class Outcome:
    """What ranks have sent, [sender][owner]; the results that went around, [owner]; what came of it.

    Of several steps the messages lie one after the other.
    """

    steps: int = 1
    messages: list[list[Bytes]] = field(default_factory=list)
    results: list[Bytes] = field(default_factory=list)
    values: list[list[Array]] = field(default_factory=list)
    saturated: int = 0


class CpuTensors:
    """One rank's tensors in CPU memory. Results are read when everything is done."""

    def __init__(self, rank: int, in_place: bool) -> None:
        self._in_place = in_place
        self._kept: list[tuple[Array, Array, Array]] = []
        self._blocks: list[Block] = []
        self.place: dict[str, int] = {}

    def block(self, content: Bytes) -> Block:
        """Messages in this memory, until the results have been read."""
        self._blocks.append(Block(content))
        return self._blocks[-1]

    def view(self, x: Array, feedback: _native.Feedback | None, count: int | None = None) -> _native.Tensor:
        """The core's view of values, with a destination of ``count`` elements."""
        source = x.copy()
        out = source if self._in_place else np.zeros(x.shape if count is None else count, x.dtype)
        self._kept.append((x, source, out))
        return tensor(source, out, feedback)

    def results(self) -> list[Array]:
        for x, source, _ in self._kept:
            assert self._in_place or source.tobytes() == x.tobytes(), "a source was written to"
        return [out for *_, out in self._kept]


Memory = Callable[[int, bool], Any]


class Job:
    """All ranks of an allreduce that is repeated: keys of random numbers and residuals stay."""

    def __init__(self, size: int, is_scattered: bool, memory: Memory = CpuTensors) -> None:
        self.size, self.is_scattered, self._memory = size, is_scattered, memory
        self.keys = [_native.DrawKeys() for _ in range(size)]
        self.feedback: list[dict[str, _native.Feedback]] = [{} for _ in range(size)]

    def keep_residuals(self, parts: Sequence[Part]) -> None:
        """From now on these parts' tensors have error feedback."""
        for rank, own in enumerate(self.feedback):
            for part in parts:
                own.update({name: _native.Feedback(xs[rank].size) for name, xs in part.tensors.items()})

    def allreduce(
        self,
        parts: Sequence[Part],
        in_place: bool = False,
        step_elements: int = 0,
        dice: Random | None = None,
    ) -> Outcome:
        """Step by step, or with ``dice`` several under way together."""
        memories = [self._memory(rank, in_place) for rank in range(self.size)]
        ranks = []
        for rank, memory in enumerate(memories):
            given = [
                (
                    part.reduction(),
                    list(part.tensors),
                    [
                        memory.view(xs[rank], self.feedback[rank].get(name))
                        for name, xs in part.tensors.items()
                    ],
                )
                for part in parts
            ]
            ranks.append(
                _native.CarriedAllreduce(
                    given, rank, self.size, self.is_scattered, self.keys[rank],
                    step_elements=step_elements, **memory.place,
                )
            )  # fmt: skip
        by_step = self._carried(ranks, memories, dice)
        outcome = Outcome(len(by_step))
        outcome.messages = [
            [np.concatenate(steps) for steps in zip(*by_owner, strict=True)]
            for by_owner in zip(*(messages for messages, _ in by_step), strict=True)
        ]
        outcome.results = [
            np.concatenate(steps) for steps in zip(*(results for _, results in by_step), strict=True)
        ]
        outcome.values = [memory.results() for memory in memories]
        outcome.saturated = sum(rank.saturated for rank in ranks)
        return outcome

    def _carried(
        self, ranks: list[_native.CarriedAllreduce], memories: list[Any], dice: Random | None
    ) -> list[tuple[list[list[Bytes]], list[Bytes]]]:
        """By step, the messages and the results."""
        assert {rank.steps for rank in ranks} == {ranks[0].steps}
        by_step: list[Any] = [([], []) for _ in range(ranks[0].steps)]
        under_way = [self._step(ranks, memories, step, *made) for step, made in enumerate(by_step)]
        calls = [step for step in under_way for _ in range(3 if self.is_scattered else 2)]
        if dice is not None:
            dice.shuffle(calls)
        for step in calls:
            next(step)
        return by_step

    def _step(
        self,
        ranks: list[_native.CarriedAllreduce],
        memories: list[Any],
        step: int,
        messages: list[list[Bytes]],
        results: list[Bytes],
    ) -> Generator[None]:
        messages += packed(ranks, memories, self.size if self.is_scattered else 1, step)
        yield
        for number, (rank, memory) in enumerate(zip(ranks, memories, strict=True)):
            own = number if self.is_scattered else 0
            result = memory.block(np.full(rank.result_bytes, UNWRITTEN, np.uint8))
            rank.reduce(arrived(memory, [sent[own] for sent in messages]), result.address, step)
            if self.is_scattered:
                results.append(result.read())
        yield
        for rank, memory in zip(ranks, memories, strict=True):
            rank.unpack(arrived(memory, results), step)
        yield


def reducescatter(
    name: str, xs: list[Array], how: Part, keys: list[_native.DrawKeys], memory: Memory = CpuTensors
) -> Outcome:
    """Every rank's chunk of the sum of xs, reduced as ``how`` says."""
    size = len(xs)
    memories = [memory(rank, False) for rank in range(size)]
    ranks = [
        _native.CarriedReduceScatter(
            how.reduction(), name, own.view(xs[rank], None, xs[rank].size // size), rank, size,
            keys[rank], **own.place,
        )
        for rank, own in enumerate(memories)
    ]  # fmt: skip
    outcome = Outcome(messages=packed(ranks, memories, size))
    for owner, (rank, own) in enumerate(zip(ranks, memories, strict=True)):
        rank.reduce(arrived(own, [sent[owner] for sent in outcome.messages]))
    outcome.values = [own.results() for own in memories]
    outcome.saturated = sum(rank.saturated for rank in ranks)
    return outcome


def addresses_in(block: Any, count: int, nbytes: int) -> list[int]:
    """Of messages that lie one after the other."""
    return [block.address + i * nbytes for i in range(count)]


def arrived(memory: Any, messages: Sequence[Bytes]) -> list[int]:
    """Their addresses in a rank's memory, where the first need not be the lowest."""
    return [memory.block(message).address for message in reversed(messages)][::-1]


def packed(ranks: Sequence[Any], memories: Sequence[Any], each: int, *step: int) -> list[list[Bytes]]:
    """What every rank packs in a step, cut into its messages."""
    messages = []
    for rank, memory in zip(ranks, memories, strict=True):
        assert rank.message_bytes == ranks[0].message_bytes
        assert rank.message_bytes % ALIGN == 0
        blocks = [memory.block(np.full(rank.message_bytes, UNWRITTEN, np.uint8)) for _ in range(each)]
        blocks.reverse()  # the first message need not be at the lowest address
        rank.pack([block.address for block in blocks], *step)
        messages.append([block.read() for block in blocks])
    return messages
