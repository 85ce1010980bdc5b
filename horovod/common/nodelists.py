"""Slurm's lists of hosts, as `node[001-003,7],gpu[1-2]x`. Standard library only: the launcher reads them."""

from __future__ import annotations

import re

from horovod.common import errors

__all__ = ["node_names"]

_MOST_HOSTS = 100_000  # a mistyped range must not fill the memory
_NUMBER = "[0-9]{1,9}"  # of more digits, none is meant
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")


def node_names(text: str) -> list[str]:
    """`node[001-003,7],gpu[1-2]x` as [node001, node002, node003, node7, gpu1x, gpu2x].

    ValueError, as the end of a sentence that begins with the text, where that is no such list.
    """
    names: list[str] = []
    for part in _split(text):
        names += _expanded(part)
        _refuse_too_many(len(names))
    return names


def _refuse_too_many(count: int) -> None:
    if count > _MOST_HOSTS:
        raise errors.too_many_hosts(most=_MOST_HOSTS)


def _split(text: str) -> list[str]:
    """At commas outside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text) if part]


def _expanded(part: str) -> list[str]:
    """Every bracket of one part, the last varying fastest."""
    head, *brackets = part.split("[")
    names = [head]
    for bracket in brackets:
        inside, close, between = bracket.partition("]")
        numbers = _numbers(inside) if close else None
        if numbers is None:
            raise errors.no_host_list(value=part)
        _refuse_too_many(len(names) * len(numbers))
        names = [name + number + between for name in names for number in numbers]
    return names


def _numbers(inside: str) -> list[str] | None:
    """`001-003,7` as [001, 002, 003, 7], at most one more than hosts may be; None for anything else."""
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        last = min(last, first + _MOST_HOSTS - len(numbers))
        numbers += [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
    return numbers
