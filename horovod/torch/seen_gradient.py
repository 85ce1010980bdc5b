"""A gradient's identity and version, to detect later changes."""

from __future__ import annotations

import weakref

import torch

__all__ = ["SeenGradient"]


class SeenGradient:
    """The tensor and version of a parameter's gradient. In-place operations raise the version.

    Writes through ``.data`` or another view of the memory are not detected.
    """

    __slots__ = ("_reference", "_version")

    def __init__(self, parameter: torch.Tensor) -> None:
        gradient = parameter.grad
        self._reference = None if gradient is None else weakref.ref(gradient)
        self._version = 0 if gradient is None else gradient._version

    def is_of(self, parameter: torch.Tensor) -> bool:
        """Return whether the parameter's gradient is still the same tensor."""
        gradient = parameter.grad
        if gradient is None:
            return self._reference is None
        return self._reference is not None and gradient is self._reference()

    def is_untouched(self, parameter: torch.Tensor) -> bool:
        """Return whether it is the same tensor with unchanged values."""
        gradient = parameter.grad
        return self.is_of(parameter) and (gradient is None or gradient._version == self._version)

    def was_only_added_to(self, parameter: torch.Tensor) -> bool:
        """Return whether at most one in-place operation has changed it, as a backward pass does."""
        gradient = parameter.grad
        return self.is_of(parameter) and gradient is not None and gradient._version <= self._version + 1
