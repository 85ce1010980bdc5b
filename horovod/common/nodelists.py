"""Slurm's lists of hosts, as `node[001-003,7],gpu[1-2]x`. Standard library only: the launcher uses this."""

from __future__ import annotations

import itertools
import math
import re

from horovod.common import errors

__all__ = ["node_names"]

_MOST_HOSTS = 100_000  # a mistyped range must not fill the memory
_NUMBER = "[0-9]{1,9}"  # longer numbers are mistakes
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")


def node_names(text: str) -> list[str]:
    """`node[001-003,7],gpu[1-2]x` as [node001, node002, node003, node7, gpu1x, gpu2x].

    ValueError for a wrong list; its text completes a sentence that begins with the list.
    """
    names: list[str] = []
    for part in filter(None, re.split(r",(?![^\[]*\])", text)):  # at commas outside brackets
        pieces = re.split(r"\[([^\]]*)\]", part)  # odd positions were in brackets
        if any("[" in piece for piece in pieces[::2]):
            raise errors.no_host_list(value=part)
        choices = [_numbers(piece, part) if at % 2 else [piece] for at, piece in enumerate(pieces)]
        if len(names) + math.prod(map(len, choices)) > _MOST_HOSTS:
            raise errors.too_many_hosts(most=_MOST_HOSTS)
        names += map("".join, itertools.product(*choices))  # the last bracket varies fastest
    return names


def _numbers(inside: str, part: str) -> list[str]:
    """`001-003,7` as [001, 002, 003, 7], at most one more than _MOST_HOSTS. ValueError for anything else."""
    numbers: list[str] = []
    for piece in inside.split(","):
        match = _RANGE.fullmatch(piece)
        if match is None:
            raise errors.no_host_list(value=part)
        first, last = int(match[1]), int(match[2] or match[1])
        last = min(last, first + _MOST_HOSTS - len(numbers))
        numbers += [f"{number:0{len(match[1])}}" for number in range(first, last + 1)]
    return numbers
