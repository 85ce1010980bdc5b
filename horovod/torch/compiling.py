"""Ends torch.compile's graphs before each operation, and lets them continue after it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

# dynamo recognizes this function when it traces, under any name
_is_compiling = torch.compiler.is_dynamo_compiling
P = ParamSpec("P")
T = TypeVar("T")


def breaks_graphs(function: Callable[P, T]) -> Callable[P, T]:
    """Exclude a function, and all that it calls, from torch.compile.

    ``torch.compiler.disable`` at import time would load the compiler, which takes seconds, in every program.
    """

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if _is_compiling():
            return torch.compiler.disable(function)(*args, **kwargs)  # type: ignore[no-any-return,no-untyped-call]
        return function(*args, **kwargs)

    return call
