"""Warnings that this package raises inside of itself are shown as its other lines: "horovod: ...".

Where they were raised tells a reader of the script nothing. One that names a line of the script, as its
`stacklevel` says, is shown as Python shows it; so is everybody else's. Filters see them all as before.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path

__all__ = ["install"]

_PACKAGE = str(Path(__file__).resolve().parents[1]) + os.sep
_before = warnings.formatwarning


def install() -> None:
    """Have warnings shown in this way, unless somebody has a way of their own already."""
    if warnings.formatwarning is _before:
        warnings.formatwarning = _format


def _format(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
) -> str:
    if os.path.realpath(filename).startswith(_PACKAGE):
        return f"horovod: {message}\n"
    return _before(message, category, filename, lineno, line)
