"""Names and groups of an optimizer's parameters, and their unique names between ranks.

Two models may have equal names of parameters, and each optimizer numbers parameters without names. If a name
is taken, all names of the optimizer get a suffix: "#" and its number among the optimizers of its process set.
All ranks make the same optimizers in the same order, so suffixes are equal; the first step checks that. A
name stays taken when its tensor is freed, as ranks may collect garbage at different times. Checkpoints have
the names without suffix.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from horovod.common.basics import basics
from horovod.common.process_sets import ProcessSet
from horovod.common.util import split_list
from horovod.torch import errors
from horovod.torch.functions import broadcast_object

Groups = int | list[list[torch.Tensor]]


def default_name(group: int, index: int) -> str:
    """Return the name of a parameter without name, from its place in ``param_groups``."""
    return f"allreduce.noname.{group}.{index}"


def checked_passes(passes: int) -> int:
    """Return ``backward_passes_per_step``. ValueError unless it is 1 or more."""
    if passes <= 0:
        raise errors.wrong_passes(value=passes)
    return passes


def parameter_names(
    param_groups: Sequence[dict[str, Any]], named_parameters: Iterable[tuple[str, torch.Tensor]] | None
) -> dict[torch.Tensor, str]:
    """Return the name of each parameter of an optimizer.

    Raises:
        ValueError: named_parameters are not (name, parameter) pairs, repeat a name, or omit a parameter.
    """
    if named_parameters is None:
        return {
            parameter: default_name(group, index)
            for group, entry in enumerate(param_groups)
            for index, parameter in enumerate(entry["params"])
        }
    pairs = list(named_parameters)
    if any(not isinstance(pair, tuple) or len(pair) != 2 for pair in pairs):
        raise errors.no_pairs()
    repeated = [name for name, count in Counter(name for name, _ in pairs).items() if count > 1]
    if repeated:
        raise errors.repeated_names(names=repeated)
    names = {parameter: name for name, parameter in pairs}
    unnamed = sum(parameter not in names for entry in param_groups for parameter in entry["params"])
    if unnamed:
        raise errors.unnamed_parameters(count=unnamed)
    return names


def checked_groups(groups: Any, num_groups: int, parameters: Sequence[torch.Tensor]) -> Groups | None:
    """Return ``groups`` in normal form: a number of groups, lists of parameters, or None for no grouping.

    Raises:
        ValueError: a negative number, a tensor that is not a parameter of the optimizer, or one given twice.
    """
    if groups is None:
        groups = num_groups
    if isinstance(groups, int):
        if groups < 0:
            raise errors.negative_groups(value=groups)
        return groups or None
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) for group in groups):
        raise errors.no_groups()
    _check_members([member for group in groups for member in group], parameters)
    return [list(group) for group in groups if group]


def _check_members(members: list[Any], parameters: Sequence[torch.Tensor]) -> None:
    if not all(isinstance(member, torch.Tensor) for member in members):
        raise errors.no_members()
    if len(set(members)) < len(members):
        raise errors.member_twice()
    if not set(members) <= set(parameters):
        raise errors.strange_member()


def group_members(groups: Groups | None, trainable: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Return the groups of trainable parameters, which are in the order that all ranks agreed on."""
    if groups is None:
        return []
    if isinstance(groups, int):
        return [group for group in split_list(trainable, groups) if group]
    wanted = set(trainable)
    members = [[member for member in group if member in wanted] for group in groups]
    return [group for group in members if group]


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
