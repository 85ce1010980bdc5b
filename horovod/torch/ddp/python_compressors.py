"""Compressors that work in Python, as operations of a courier: gathered codes, rounds, and what is only cast.

The arithmetic is that of the engine's routes for them: gathered.py, rounds.py and submission.py.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import torch

from horovod.torch.compression.contract import State
from horovod.torch.compression.first_step import NoteSent
from horovod.torch.ddp.exchange import Exchange, Messages
from horovod.torch.gathered import contribution, reduced
from horovod.torch.reduce_ops import Average, ReduceArguments
from horovod.torch.residuals import TensorFeedback, compressed_with
from horovod.torch.rounds import RunningRounds

__all__ = ["ALIGNMENT", "InRounds", "PythonMember", "gather_codes", "start_summed", "to_everybody"]

ALIGNMENT = 16  # bytes: of messages


class PythonMember(NamedTuple):
    """A gradient (contiguous, reduced in place) whose compressor works in Python, and what is kept of it."""

    name: str
    tensor: torch.Tensor
    compressor: Any
    feedback: TensorFeedback | None
    state: State
    note_sent: NoteSent


class _ToEverybody:
    """An exchange of one run of bytes, which may be shorter than the message. Attributes: see Exchange."""

    is_last = False
    is_scattered = False
    steps = 1
    result_bytes = 0

    def __init__(self, payload: torch.Tensor, message_bytes: int) -> None:
        self.message_bytes = -(-message_bytes // ALIGNMENT) * ALIGNMENT
        self._payload = payload
        self.arrived: Messages = []

    def pack(self, messages: Messages, step: int) -> None:
        (message,) = messages
        message[: self._payload.numel()] = self._payload
        message[self._payload.numel() :] = 0

    def reduce(self, arrived: Messages, result: torch.Tensor, step: int) -> None:
        self.arrived = arrived

    def unpack(self, results: Messages, step: int) -> None:
        raise AssertionError("there are no results")


def to_everybody(payload: torch.Tensor, message_bytes: int) -> Generator[Exchange, None, Messages]:
    """Give all ranks a 1-D uint8 tensor of up to ``message_bytes`` bytes, which is the same on all ranks.

    Returns those of all ranks, padded with zeros to message_bytes rounded up to 16. They stay as they are
    until the next exchange.
    """
    exchange = _ToEverybody(payload, message_bytes)
    yield exchange
    return exchange.arrived


def start_summed(member: PythonMember) -> tuple[torch.Tensor, Callable[[], None]]:
    """What is to be reduced in place, exactly, for a compressor whose output may be added; and how that then
    gets into the gradient.
    """
    small, ctx = compressed_with(member.compressor, member.tensor, member.feedback)
    small = small.contiguous()
    member.note_sent(small.nbytes)

    def finish() -> None:
        member.tensor.copy_(member.compressor.decompress(small, ctx))

    return small, finish


class InRounds:
    """Gradients whose compressors talk in rounds, which go on together."""

    def __init__(self, members: Sequence[PythonMember], size: int) -> None:
        self._members = members
        self._size = size
        self._values = [
            member.tensor if member.feedback is None else member.feedback.added_to(member.tensor)
            for member in members
        ]
        self._running = RunningRounds(
            ", ".join(member.name for member in members),
            [
                member.compressor.rounds(value, member.state)
                for member, value in zip(members, self._values, strict=True)
            ],
            [member.tensor.shape for member in members],
        )
        self._sums: list[torch.Tensor] = []
        self._number = 0

    def next_sums(self) -> list[tuple[str, torch.Tensor, torch.Tensor]]:
        """(name, source, destination) of the sums that come next; none: all rounds are over."""
        sources = self._running.proceed(self._sums)
        self._sums = [torch.empty_like(source) for source in sources]
        self._number += 1
        return [
            (f"{self._members[0].name}.round{self._number}.{i}", source, sum_)
            for i, (source, sum_) in enumerate(zip(sources, self._sums, strict=True))
        ]

    def finish(self, op: int) -> None:
        """Put the results into the gradients, and keep what is lost."""
        sums = self._running.results()
        sent_bytes = self._running.sent_bytes
        for member, value, sum_, sent in zip(self._members, self._values, sums, sent_bytes, strict=True):
            member.note_sent(sent)
            if member.feedback is not None:
                # What the sum lacks is shared out: all residuals together are what all ranks have lost.
                member.feedback.keep(value, sum_ / self._size)
            member.tensor.copy_(sum_ * (1 / self._size if op == Average else 1.0))


def gather_codes(members: Sequence[PythonMember], op: int, size: int) -> Generator[Exchange, None, None]:
    """Codes that may not be added: those of all ranks are gathered, decompressed and added here.

    Two exchanges: how long they are differs by rank.
    """
    arguments = ReduceArguments(op, 1.0, 1.0)
    own = [contribution(m.name, m.tensor, arguments, m.compressor, m.feedback) for m in members]
    payloads = [each.payload for each in own]
    for member, payload in zip(members, payloads, strict=True):
        member.note_sent(payload.nbytes)
    lengths = torch.tensor([payload.numel() for payload in payloads], dtype=torch.int64)
    lengths = lengths.to(payloads[0].device).view(torch.uint8)
    rows = yield from to_everybody(lengths, lengths.numel())
    # From a GPU this is a copy for which the host waits, as the headers in gathered.reduced() are.
    by_rank = torch.stack([row[: lengths.numel()] for row in rows]).view(torch.int64).tolist()
    longest = max(map(sum, by_rank))
    rows = yield from to_everybody(torch.cat(payloads), longest)
    begins = [0] * size
    for i, (member, contributed) in enumerate(zip(members, own, strict=True)):
        sizes = [lengths_of_rank[i] for lengths_of_rank in by_rank]
        parts = [row[begin : begin + n] for row, begin, n in zip(rows, begins, sizes, strict=True)]
        member.tensor.copy_(reduced(contributed, torch.cat(parts), sizes))
        begins = [begin + n for begin, n in zip(begins, sizes, strict=True)]
