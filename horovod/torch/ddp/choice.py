"""Measures while training whether compression pays: ``may_turn_off=True``.

After the WARM_UP steps (DDP rebuilds its buckets after the first), steps with and without compression
alternate, as MEASURED lists. A step lasts from its first bucket to the next step's: communication, optimizer,
data and forward pass. The median of each kind counts, on the slowest rank, so that all ranks choose alike.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.distributed as dist

WARM_UP = (True, True, False, False)  # whether a step is compressed
MEASURED = (True, False, False, True) * 5

_log = logging.getLogger("horovod.torch.ddp")


class Choice(NamedTuple):
    """The choice and its reason: medians of the slowest rank's steps, in seconds."""

    is_compressed: bool
    compressed_seconds: float
    plain_seconds: float

    def __str__(self) -> str:
        chosen = "on" if self.is_compressed else "off"
        return (
            f"compression is {chosen}: a step takes {1000 * self.compressed_seconds:.3g} ms with it and "
            f"{1000 * self.plain_seconds:.3g} ms without (median of {len(MEASURED) // 2} each, slowest rank)"
        )


class Trial:
    """Decides for each step whether it is compressed, until there is a choice.

    Args:
        group: the ranks that choose together.
        clock: returns seconds since an arbitrary time.
    """

    def __init__(self, group: dist.ProcessGroup, clock: Callable[[], float] = time.perf_counter) -> None:
        self.choice: Choice | None = None
        self._group, self._clock = group, clock
        self._plan = WARM_UP + MEASURED
        self._begins: list[float] = []

    def begin_step(self, device: torch.device) -> bool:
        """Return whether the new step is compressed. Collective once, after the last measured step.

        ``device`` is that of the gradients. While steps are measured, the host waits for a GPU.
        """
        if self.choice is None:
            if device.type != "cpu":
                torch.accelerator.synchronize(device)
            self._begins.append(self._clock())
            if len(self._begins) <= len(self._plan):
                return self._plan[len(self._begins) - 1]
            self.choice = self._chosen(device)
        return self.choice.is_compressed

    def _chosen(self, device: torch.device) -> Choice:
        times = [end - begin for begin, end in zip(self._begins, self._begins[1:], strict=False)]
        measured = list(zip(self._plan, times, strict=True))[len(WARM_UP) :]
        medians = [
            statistics.median(seconds for kind, seconds in measured if kind is wanted)
            for wanted in (True, False)
        ]
        slowest = torch.tensor(medians, dtype=torch.float64, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX, self._group)
        compressed, plain = slowest.tolist()
        choice = Choice(compressed <= plain, compressed, plain)
        if dist.get_rank(self._group) == 0:
            # A warning, so that it is visible without configured logging.
            _log.warning("%s", choice)
        return choice
