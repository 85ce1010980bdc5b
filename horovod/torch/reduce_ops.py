"""Reduce operations and their factors."""

from __future__ import annotations

import sys
from typing import NamedTuple

from horovod.common.util import get_average_backwards_compatibility_fun
from horovod.torch import errors

Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

OP_NAMES = ("Average", "Sum", "Adasum", "Min", "Max", "Product")

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(sys.modules[__name__])


class ReduceArguments(NamedTuple):
    """The arithmetic of a reduction."""

    op: int
    prescale: float
    postscale: float


def reduce_arguments(op: int, prescale: float, postscale: float) -> ReduceArguments:
    """Return the checked arguments of a reduction. ValueError on an unknown op."""
    if op not in (Average, Sum, Adasum, Min, Max, Product):
        raise errors.no_operation(value=op)
    return ReduceArguments(int(op), float(prescale), float(postscale))


def allreduce_arguments(
    average: bool | None, op: int | None, prescale: float, postscale: float
) -> ReduceArguments:
    """As reduce_arguments; ``average`` is the deprecated predecessor of ``op``, and Average the default."""
    return reduce_arguments(handle_average_backwards_compatibility(op, average), prescale, postscale)
