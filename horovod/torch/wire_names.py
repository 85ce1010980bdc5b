"""Unique names of the tensors of several optimizers of one job.

Two models may have equal names of parameters, and each optimizer numbers parameters without names. If a name
is taken, all names of the optimizer get a suffix: "#" and its number among the optimizers of its process set.
All ranks make the same optimizers in the same order, so suffixes are equal; the first step checks that. A
name stays taken when its tensor is freed, as ranks may collect garbage at different times. Checkpoints have
the names without suffix.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Mapping

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.torch import errors
from horovod.torch.functions import broadcast_object

__all__ = ["WireNames", "in_order_of_first_rank", "suffix_of"]


class WireNames:
    """The names that are taken in a job, until it ends."""

    def __init__(self) -> None:
        self._taken: dict[tuple[int | None, str], weakref.ref[torch.Tensor]] = {}
        self._optimizers: Counter[int | None] = Counter()

    def number_for(self, process_set_id: int | None, names: Mapping[torch.Tensor, str]) -> int:
        """Return a new optimizer's number: 0 if its names are free, else its position in its set."""
        self._optimizers[process_set_id] += 1
        is_free = all(
            self._taken.get((process_set_id, name), lambda p=parameter: p)() is parameter
            for parameter, name in names.items()
        )
        number = 0 if is_free else self._optimizers[process_set_id]
        self.take(process_set_id, number, names)
        return number

    def take(self, process_set_id: int | None, number: int, names: Mapping[torch.Tensor, str]) -> None:
        """Mark these names as taken."""
        suffix = suffix_of(number)
        for parameter, name in names.items():
            self._taken[process_set_id, name + suffix] = weakref.ref(parameter)


def suffix_of(number: int) -> str:
    """Return the suffix of an optimizer's wire names. The core ignores it when it seeds random numbers."""
    return f"#{number}" if number else ""


def in_order_of_first_rank(
    by_name: Mapping[str, torch.Tensor], groups: int, process_set: ProcessSet
) -> list[torch.Tensor]:
    """Return parameters in the order of the set's first rank. Collective.

    ValueError unless all ranks have the same parameters, which ``groups`` cuts by number.
    """
    assert process_set.ranks is not None
    first = process_set.ranks[0]
    # A fixed name, so that counts of unnamed operations stay equal on ranks outside of the set.
    order = broadcast_object(list(by_name), first, "DistributedOptimizer.groups", process_set)
    if set(order) != set(by_name):
        names = sorted(set(order) ^ set(by_name))
        raise errors.groups_differ(value=groups, ranks=[basics.rank()], root=first, names=names)
    return [by_name[name] for name in order]
