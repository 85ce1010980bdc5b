"""torch.compile and the operations: its graphs end before each, and go on after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

__all__ = ["breaks_graphs"]

_is_compiling = torch.compiler.is_dynamo_compiling  # it knows the function when it traces, by whatever name
P = ParamSpec("P")
T = TypeVar("T")


def breaks_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Have torch.compile call a function as it is, and look at nothing it calls.

    ``torch.compiler.disable`` from the start would import the compiler, for seconds, where nobody compiles.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if _is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return,no-untyped-call]
        return function(*args, **kwargs)

    return call
