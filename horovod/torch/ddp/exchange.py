"""What travels between the ranks of a process group, as those who carry it (couriers) see it.

    operation := exchange*                                       one after the other
    exchange  := step*                                           several at a time
    step      := pack -> messages -> reduce [-> results -> unpack]

While a step is on its way, others are worked on.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

import torch

__all__ = ["Exchange", "Messages", "Operation"]

Messages = Sequence[torch.Tensor]


class Exchange(Protocol):
    """What one message from each rank to each is in every step, and what becomes of those that arrive.

    Each call is made for one step after the other. Messages are 1-D uint8 tensors that begin at multiples of
    16 bytes, those to or from all ranks in rank order. What has arrived in the last step stays as it is until
    the operation goes on to its next exchange. `pack` gets a message for each rank if there is one for each,
    else one; `reduce` and `unpack` one of each rank.

    Attributes:
        is_last: whether the operation sends nothing after it.
        is_scattered: whether there is a message for each rank, instead of one for all.
        steps: how many: 1 or more, the same on all ranks.
        message_bytes: of one message, in every step: a multiple of 16, the same on all ranks.
        result_bytes: of what each rank has for all once it has reduced, likewise; 0: nothing, and no unpack.
    """

    is_last: bool
    is_scattered: bool
    steps: int
    message_bytes: int
    result_bytes: int

    def pack(self, messages: Messages, step: int) -> None: ...

    def reduce(self, arrived: Messages, result: torch.Tensor, step: int) -> None: ...

    def unpack(self, results: Messages, step: int) -> None: ...


Operation = Generator[Exchange, None, None]
