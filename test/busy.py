"""How much longer tests may take where a machine has more to do than cores."""

from __future__ import annotations

import os

__all__ = ["times_longer"]

MOST = 8.0  # a test that hangs is to be found all the same


def times_longer() -> float:
    """1 on a machine at rest; by the load of the last minute."""
    return min(max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)), MOST)
