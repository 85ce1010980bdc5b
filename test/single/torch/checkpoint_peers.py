"""The ranks that share a checkpoint, without a job."""

from __future__ import annotations

from typing import Any


class Peers:
    """The peers of rank ``rank`` of ``size``. Only a single rank can gather."""

    owner = "optimizer"

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self._rank, self._size = rank, size

    def ranks(self) -> list[int]:
        return list(range(self._size))

    def position(self) -> int:
        return self._rank

    def size(self) -> int:
        return self._size

    def gathered(self, own: Any, at: int) -> list[Any]:
        assert self._size == 1, "nothing is gathered here"
        return [own]
