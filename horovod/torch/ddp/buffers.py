"""Memory for messages, used again and again: the system takes long to find so much at every step."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["Buffers"]


class Buffers:
    """Buffers in host memory. As many bytes are kept for later as were ever in use at a time."""

    def __init__(self) -> None:
        self._free: list[torch.Tensor] = []  # the one given back last at the end
        self._used: dict[int, torch.Tensor] = {}  # by address
        self._most_used_bytes = 0

    def take(self, nbytes: int) -> torch.Tensor:
        """1-D uint8, at a multiple of 64 bytes, with whatever was in it before; it may begin a longer one.

        Messages of many lengths follow each other: were each to find its very own, none would be kept long.
        """
        if nbytes == 0:
            return torch.empty(0, dtype=torch.uint8)
        fitting = [place for place, buffer in enumerate(self._free) if buffer.numel() >= nbytes]
        if fitting:
            buffer = self._free.pop(min(reversed(fitting), key=lambda place: self._free[place].numel()))
        else:
            buffer = torch.empty(nbytes, dtype=torch.uint8)
        self._used[buffer.data_ptr()] = buffer
        self._most_used_bytes = max(self._most_used_bytes, _bytes(self._used.values()))
        return buffer[:nbytes]

    def give_back(self, taken: torch.Tensor) -> None:
        """What take() has returned: nobody uses it any more."""
        if taken.numel() == 0:
            return
        self._free.append(self._used.pop(taken.data_ptr()))
        while _bytes(self._free) > self._most_used_bytes:
            self._free.pop(min(range(len(self._free)), key=lambda place: self._free[place].numel()))


def _bytes(buffers: Iterable[torch.Tensor]) -> int:
    return sum(buffer.numel() for buffer in buffers)
