"""Modules that a worker loads before others wait for it."""

from __future__ import annotations

import torch

__all__ = ["load_compiler"]


def load_compiler() -> None:
    """torch imports its compiler for the first optimizer, in 1.7 s of a core. Scripts make theirs after
    ``hvd.init()``, when the others wait for this worker; so one is made here.
    """
    torch.optim.SGD([torch.zeros(1)], lr=1.0)
