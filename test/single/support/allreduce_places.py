"""Ranks as threads in several arrangements, each with a pattern of allreduces, and NumPy's results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import oracle
import pytest
from numpy.typing import NDArray
from ranks import SUM, on_ranks, predictable

from horovod import _native

HALVES = (
    np.float16,
    ml_dtypes.bfloat16,
)  # their sums have a wider dtype, and do not use the ring


@dataclass(frozen=True)
class Place:
    size: int
    shares_memory: bool = True
    hosts: Sequence[int] = ()  # each rank's host number; empty: all ranks are on one host
    algorithm: str = "auto"

    def run(self, program: Callable[[int, _native.Engine], Any]) -> list[Any]:
        return on_ranks(self.size, program, self.shares_memory, predictable(self.algorithm), hosts=self.hosts)

    def large(self, codec: str) -> int:
        """A number of elements that takes many steps and several rounds of the slots of a host's window."""
        if self.algorithm == "hierarchical" and codec != "bit16":
            return 2_500_000
        return 1_300_003 if self.algorithm == "ring" and not codec else 400_000

    def allreduce(
        self,
        xs: list[NDArray[Any]],
        codec: str = "",
        op: int = SUM,
        prescale: float = 1.0,
        postscale: float = 1.0,
    ) -> NDArray[Any]:
        """The expected result of an allreduce of `xs`, which are in rank order."""
        if self.algorithm == "hierarchical":
            return oracle.hierarchical_allreduce(xs, self.hosts, codec, op, prescale, postscale)
        if codec and self.size > 1:
            return oracle.compressed_allreduce(xs, codec, 128, op, prescale, postscale)
        if self.algorithm == "ring" and prescale == 1.0 and xs[0].dtype not in HALVES:
            return oracle.ring_allreduce(xs, self.hosts, op, postscale)
        return oracle.allreduce(xs, op, prescale, postscale)


def _named(place: Place) -> Any:
    flat = "window" if place.shares_memory else "exchange"
    where = "+".join(str(place.hosts.count(host)) for host in sorted(set(place.hosts))) or str(place.size)
    return pytest.param(place, id=f"{flat if place.algorithm == 'auto' else place.algorithm} {where}")


def _on_hosts(algorithm: str, *places: Sequence[int]) -> list[Any]:
    return [_named(Place(len(hosts), algorithm == "hierarchical", hosts, algorithm)) for hosts in places]


PLACES = [
    *(_named(Place(size, shares_memory)) for size in (1, 2, 3, 5, 7) for shares_memory in (True, False)),
    *_on_hosts("hierarchical", [0, 1, 0, 1], [0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2], [0, 1, 1, 1]),
    *_on_hosts("hierarchical", [0, 0, 1], [0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 2, 2]),
    *_on_hosts("ring", [0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2, 0]),
]
