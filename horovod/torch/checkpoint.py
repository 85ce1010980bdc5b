"""What a DistributedOptimizer's checkpoint holds besides the wrapped optimizer's, in state_dict()["horovod"]:

    rank, size     whose checkpoint it is, and of how many ranks; both of the optimizer's process set
    residuals      rank -> Residuals.state_dict(): this rank's, or, after ``consolidate``, everybody's
    compressors    parameter -> what its compressor remembers; the same on every rank

Every rank's residuals are its own: a checkpoint that rank 0 alone writes would lose the others'.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping
from typing import Any, cast

import cloudpickle  # type: ignore[import-untyped]
import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet, global_process_set
from horovod.torch.compression.memory import Memory
from horovod.torch.handles import synchronize
from horovod.torch.requests import start_alltoall
from horovod.torch.residuals import Residuals

__all__ = ["Checkpoint", "scattered"]

ROW = 1024  # bytes: pickles travel as rows of so many, since the number of rows is an int32


class Checkpoint:
    """Saves and restores what a GradientReducer remembers between steps."""

    def __init__(self, residuals: Residuals, memory: Memory, process_set: ProcessSet) -> None:
        self._residuals, self._memory, self._process_set = residuals, memory, process_set
        self._rank, self._size = 0, 1  # in the process set, also when the job is over
        # Every rank's residuals as they were gathered or loaded, true until the next reduction.
        self._everybodys: dict[int, Any] | None = None

    def _look_around(self) -> None:
        self._rank, self._size = self._process_set.rank() or 0, self._process_set.size() or 1

    def on_reduction(self) -> None:
        """What is known here of other ranks' residuals is no longer true."""
        self._look_around()
        self._everybodys = None

    def state_dict(self) -> dict[str, Any]:
        """Empty where there is nothing to save."""
        residuals = dict(self._everybodys or {})
        if self._residuals:
            residuals[self._rank] = self._residuals.state_dict()
        compressors = self._memory.state_dict()
        if not residuals and not compressors:
            return {}
        return {"rank": self._rank, "size": self._size, "residuals": residuals, "compressors": compressors}

    def load_state_dict(self, saved: Mapping[str, Any] | None, names: Collection[str] | None = None) -> None:
        """Go on from what ``state_dict()`` returned, or from nothing.

        Residuals that are not there for this rank, or of no parameter called one of ``names``, begin anew,
        with a warning.
        """
        if saved:
            self._look_around()
        saved = saved or {"size": self._size, "residuals": {}, "compressors": {}}
        self._memory.load_state_dict(saved["compressors"])
        residuals = saved["residuals"]
        own = residuals.get(self._rank) if saved["size"] == self._size else None
        is_complete = own is not None and len(residuals) == self._size
        self._everybodys = dict(residuals) if is_complete else None
        strangers = self._residuals.load_state_dict(own, names)
        if strangers:
            warnings.warn(
                f"The checkpoint has error feedback of {', '.join(strangers)}, which is no parameter of this "
                "optimizer: it is left out.",
                stacklevel=2,
            )
        if residuals and own is None and self._size > 1 and self._residuals.is_kept:
            of = ", ".join(map(str, residuals))
            warnings.warn(
                f"Error feedback begins anew on rank {self._rank} of {self._size}: the checkpoint has that "
                f"of rank {of} of {saved['size']}. Call optimizer.consolidate_residuals() on all ranks "
                "before state_dict() to save everybody's; it fits the same number of ranks only.",
                stacklevel=2,
            )

    def consolidate(self, to: int) -> None:
        """Gather every rank's residuals on rank ``to`` of the job: there state_dict() has them until the next
        reduction. All ranks of the process set make the call; others do nothing.
        """
        ranks = self._process_set.ranks
        if not self._process_set.included() or ranks is None:
            return
        if to not in ranks:
            raise ValueError(f"consolidate_residuals(to={to}): the optimizer's ranks are {ranks}.")
        self._look_around()
        own = self._residuals.state_dict()
        received = _exchanged({ranks.index(to): own}, "residuals", self._process_set)
        if basics.rank() == to:
            self._everybodys = dict(enumerate(received))

    def parts(self) -> dict[int, Any]:
        """By rank of the job, what that rank needs in order to go on where this one does.

        Residuals are among it only where a checkpoint with everybody's was loaded here.
        """
        saved = self.state_dict()
        if not saved:
            return {}
        everybodys, ranks = self._everybodys or {}, self._process_set.ranks or []
        return {
            rank: {**saved, "residuals": {place: everybodys[place]} if place in everybodys else None}
            for place, rank in enumerate(ranks)
        }

    def take(self, part: Mapping[str, Any] | None) -> None:
        """Go on from what another rank's ``parts()`` has for this one; what it has not is forgotten."""
        own = part["residuals"] if part is not None else None
        if own is None and self._residuals:
            warnings.warn(
                f"Error feedback begins anew on rank {self._rank} of {self._size}: the rank whose state is "
                "broadcast has none of this rank. Load a checkpoint there that was made after "
                "optimizer.consolidate_residuals().",
                stacklevel=3,
            )
        self.load_state_dict({**part, "residuals": own or {}} if part is not None else None)


def scattered(parts: Mapping[int, Any], root: int) -> Any:
    """``parts[rank]`` of rank ``root``, on each rank of the job; None where there is none."""
    return _exchanged(parts if basics.rank() == root else {}, "parts", global_process_set)[root]


def _exchanged(parts: Mapping[int, Any], name: str, process_set: ProcessSet) -> list[Any]:
    """Gives each rank of the set the object ``parts`` has for it; returns what every rank gave this one."""
    pickled = [
        cloudpickle.dumps(parts[place]) if place in parts else b"" for place in range(process_set.size() or 1)
    ]
    rows = [-(-len(each) // ROW) for each in pickled]
    padded = b"".join(each.ljust(count * ROW, b"\0") for each, count in zip(pickled, rows, strict=True))
    sent = torch.frombuffer(bytearray(padded), dtype=torch.uint8) if padded else torch.ByteTensor()
    splits = torch.tensor(rows, dtype=torch.int32)
    handle = start_alltoall(sent.reshape(-1, ROW), splits, f"DistributedOptimizer.{name}", process_set)
    received, counts = cast(tuple[torch.Tensor, torch.Tensor], synchronize(handle))
    # A pickle says where it ends: what fills its last row is not read.
    return [
        cloudpickle.loads(each.numpy().tobytes()) if each.numel() else None
        for each in torch.split(received, counts.tolist())
    ]
