"""Read the error feedback in states of optimizers and of compressed models."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["are_equal", "residuals_in"]

Residuals = dict[str, tuple[torch.Tensor, torch.Tensor]]


def residuals_in(saved: dict[str, Any], rank: int) -> Residuals:
    """Return a rank's residuals by parameter, for each stage."""
    own = saved.get("residuals", {}).get(rank, {"parameters": {}})["parameters"]
    return {name: (of["sent"][1].clone(), of["result"][1].clone()) for name, of in own.items()}


def are_equal(a: Residuals, b: Residuals) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(x, y) for name in a for x, y in zip(a[name], b[name], strict=True)
    )
