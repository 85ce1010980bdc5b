"""A gradient's identity and version, to find out later whether somebody has changed it."""

from __future__ import annotations

import weakref

import torch

__all__ = ["SeenGradient"]


class SeenGradient:
    """A parameter's gradient: which tensor, and its version, which operations in place raise.

    What is written through ``.data`` or another view of the memory raises no version, and goes unseen.
    """

    __slots__ = ("_reference", "_version")

    def __init__(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        self._reference = None if gradient is None else weakref.ref(gradient)
        self._version = 0 if gradient is None else gradient._version

    def is_of(self, parameter: torch.Tensor) -> bool:
        """Whether the parameter has the same tensor as its gradient still."""
        gradient = parameter.grad
        if gradient is None:
            return self._reference is None
        return self._reference is not None and gradient is self._reference()

    def is_untouched(self, parameter: torch.Tensor) -> bool:
        """Whether it has, and the values have not been changed either."""
        gradient = parameter.grad
        return self.is_of(parameter) and (gradient is None or gradient._version == self._version)

    def was_only_added_to(self, parameter: torch.Tensor) -> bool:
        """Whether one operation in place has been done to it, as by a backward pass, and no other."""
        gradient = parameter.grad
        return self.is_of(parameter) and gradient is not None and gradient._version <= self._version + 1
