"""What a courier knows of an operation that is under way."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from horovod.torch.ddp.exchange import Exchange, Operation

__all__ = ["Journey", "Leg", "Step", "in_rank_order"]


class Journey:
    """An operation that was started, and who waits for it."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.future: torch.futures.Future[None] = torch.futures.Future()


class Step(NamedTuple):
    """One of an exchange's."""

    journey: Journey
    exchange: Exchange
    number: int

    @property
    def is_last(self) -> bool:
        return self.number == self.exchange.steps - 1


class Leg:
    """Of a step, what arrives from each rank: contributions, or results.

    Attributes:
        own: this rank's message to itself, which stays where it is; where all get the same, what is sent.
        others: where those of the others arrive, one after the other.
        by_rank: all of them.
        lent: memory for what is sent, unless that is `own`; given back when all has arrived.
    """

    def __init__(self, step: Step, buffer: torch.Tensor, nbytes: int, rank: int, size: int) -> None:
        self.step = step
        self.buffer = buffer
        self.others, self.own = buffer[: buffer.numel() - nbytes], buffer[buffer.numel() - nbytes :]
        self.by_rank = in_rank_order(self.others, self.own, rank, size)
        self.lent: torch.Tensor | None = None
        self.work: Any = None
        self.has_arrived = False


def in_rank_order(others: torch.Tensor, own: torch.Tensor, rank: int, size: int) -> list[torch.Tensor]:
    """This rank's message, and those of or for the others, which lie one after the other."""
    messages = list(others.view(size - 1, own.numel()))
    messages.insert(rank, own)
    return messages
