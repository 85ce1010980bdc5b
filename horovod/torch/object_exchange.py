"""Exchange of Python objects that differ by pair of ranks, for residuals and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import cloudpickle  # type: ignore[import-untyped]
import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.handles import synchronize
from horovod.torch.requests import start_alltoall

__all__ = ["ProcessSetPeers", "scattered"]

ROW = 1024  # bytes; pickles travel as rows, because the number of rows is an int32


class ProcessSetPeers:
    """The ranks of a process set, as peers of an optimizer's checkpoint (checkpoint.Peers)."""

    owner = "optimizer"

    def __init__(self, process_set: ProcessSet) -> None:
        self._process_set = process_set

    def ranks(self) -> list[int] | None:
        return self._process_set.ranks

    def position(self) -> int | None:
        return self._process_set.rank()

    def size(self) -> int | None:
        return self._process_set.size()

    def gathered(self, own: Any, at: int) -> list[Any] | None:
        received = _exchanged({at: own}, "residuals", self._process_set)
        return received if self.position() == at else None


def scattered(parts: Mapping[int, Any], root: int) -> Any:
    """Return ``parts[rank]`` of rank ``root`` on each rank of the job; None if it has none."""
    return _exchanged(parts if basics.rank() == root else {}, "parts", global_process_set)[root]


def _exchanged(parts: Mapping[int, Any], name: str, process_set: ProcessSet) -> list[Any]:
    """Send ``parts[i]`` to each rank i of the set, and return the objects received, by rank."""
    positions = range(process_set.size() or 1)
    pickled = [cloudpickle.dumps(parts[each]) if each in parts else b"" for each in positions]
    rows = [-(-len(each) // ROW) for each in pickled]
    padded = b"".join(each.ljust(count * ROW, b"\0") for each, count in zip(pickled, rows, strict=True))
    sent = torch.frombuffer(bytearray(padded), dtype=torch.uint8) if padded else torch.ByteTensor()
    splits = torch.tensor(rows, dtype=torch.int32)
    handle = start_alltoall(sent.reshape(-1, ROW), splits, f"DistributedOptimizer.{name}", process_set)
    received, counts = cast(tuple[torch.Tensor, torch.Tensor], synchronize(handle))
    # A pickle marks its own end, so the padding of its last row is not read.
    return [
        cloudpickle.loads(each.numpy().tobytes()) if each.numel() else None
        for each in torch.split(received, counts.tolist())
    ]
