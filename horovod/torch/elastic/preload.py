"""Modules that a worker loads early, before other ranks wait for it."""

from __future__ import annotations

import torch

__all__ = ["load_compiler"]


def load_compiler() -> None:
    """Load torch's compiler, which torch otherwise imports for the first optimizer, in 1.7 s of a core.

    Scripts make that after ``hvd.init()``, when other ranks wait for this worker.
    """
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
