"""Memory for messages, used again and again: the system takes long to find so much at every step."""

from __future__ import annotations

from typing import NamedTuple

import torch

__all__ = ["Buffers"]

MOST_WASTE = 4  # times the length of a message: a longer buffer is not for it


class _Loan(NamedTuple):
    buffer: torch.Tensor
    nbytes: int  # of it that were asked for


class Buffers:
    """Buffers in host memory. As many bytes are kept for later as were ever asked for at a time."""

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []  # the one given back last at the end
        self._lent: dict[int, _Loan] = {}  # by address
        self._most_asked_bytes = 0

    def take(self, nbytes: int) -> torch.Tensor:
        """1-D uint8, at a multiple of 64 bytes, with whatever was in it before; it may begin a longer one.

        Messages of many lengths follow each other: were each to find its very own, none would be kept long.
        """
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        lengths = [buffer.numel() for buffer in self._free]
        fitting = [place for place, n in enumerate(lengths) if nbytes <= n <= MOST_WASTE * nbytes]
        if fitting:
            buffer = self._free.pop(min(reversed(fitting), key=lambda place: lengths[place]))
        else:
            buffer = torch.empty(nbytes, dtype=torch.uint8)
        self._lent[buffer.data_ptr()] = _Loan(buffer, nbytes)
        asked = sum(loan.nbytes for loan in self._lent.values())
        self._most_asked_bytes = max(self._most_asked_bytes, asked)
        return buffer[:nbytes]

    def give_back(self, taken: torch.Tensor) -> None:
        """What take() has returned: nobody uses it any more."""
        if taken.numel() == 0:
            return
        self._free.append(self._lent.pop(taken.data_ptr()).buffer)
        while sum(buffer.numel() for buffer in self._free) > self._most_asked_bytes:
            self._free.pop(0)
