"""Make PyTorch's GradScaler wait for reductions before it unscales gradients.

The scaler changes gradients in place without raising their versions, so the change cannot be detected later.
This module wraps both methods that do so: ``torch.amp.GradScaler.unscale_``, which ``step`` calls if the
script has not, and ``_check_inf_per_device``, for optimizers that unscale by themselves (``fused=True``).
Both take the optimizer as their first argument.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = ["settle_before_unscaling"]

NAMES = ("unscale_", "_check_inf_per_device")


def settle_before_unscaling() -> None:
    """Make all scalers wait for a DistributedOptimizer's gradients. Idempotent."""
    for name in NAMES:
        original = getattr(torch.amp.GradScaler, name)
        if not hasattr(original, "_horovod_original"):
            setattr(torch.amp.GradScaler, name, _settling(original))


def _settling(original: Any) -> Any:
    @functools.wraps(original)
    def settle_first(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        settle = getattr(optimizer, "_before_unscaling", None)
        if settle is not None and scaler.is_enabled():
            settle()
        return original(scaler, optimizer, *args, **kwargs)

    settle_first._horovod_original = original  # type: ignore[attr-defined]
    return settle_first
