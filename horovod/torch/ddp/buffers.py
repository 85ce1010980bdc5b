"""Memory for messages, used again and again: the system takes long to find so much at every step."""

from __future__ import annotations

from collections import deque

import torch

__all__ = ["Buffers"]


class Buffers:
    """Buffers in host memory. As many bytes are kept for later as were ever in use at a time."""

    def __init__(self) -> None:
        self._free: deque[torch.Tensor] = deque()  # the one given back last at the end
        self._free_bytes = 0
        self._used_bytes = 0
        self._most_used_bytes = 0

    def take(self, nbytes: int) -> torch.Tensor:
        """1-D uint8, at a multiple of 64 bytes, with whatever was in it before."""
        self._used_bytes += nbytes
        self._most_used_bytes = max(self._most_used_bytes, self._used_bytes)
        for place, buffer in enumerate(self._free):
            if buffer.numel() == nbytes:
                del self._free[place]
                self._free_bytes -= nbytes
                return buffer
        return torch.empty(nbytes, dtype=torch.uint8)

    def give_back(self, buffer: torch.Tensor) -> None:
        """Nobody uses it any more."""
        self._used_bytes -= buffer.numel()
        self._free.append(buffer)
        self._free_bytes += buffer.numel()
        while self._free_bytes > self._most_used_bytes:
            self._free_bytes -= self._free.popleft().numel()
