"""Install this checkout's package by metadata only, by which torch finds its entry point.

The installed package may be another checkout's, or older than pyproject.toml. The first folder in PYTHONPATH
takes precedence for metadata as for modules.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import horovod

__all__ = ["entry_points", "environment_with_metadata"]

ROOT = Path(__file__).resolve().parents[2]
_TABLE = re.compile(r'^\[project\.entry-points\."([\w.]+)"\][^\n]*\n((?:\w+ = "[^"\n]+"\n)+)', re.MULTILINE)


def entry_points() -> dict[str, dict[str, str]]:
    """Return group -> name -> object, from pyproject.toml."""
    tables = _TABLE.findall((ROOT / "pyproject.toml").read_text())
    return {group: dict(re.findall(r'^(\w+) = "(.+)"$', rows, re.MULTILINE)) for group, rows in tables}


def environment_with_metadata(folder: Path) -> dict[str, str]:
    """Write the package's metadata to ``folder``; return the variables by which processes find them."""
    version = horovod.__version__
    metadata = folder / f"horovod-{version}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: horovod\nVersion: {version}\n")
    (metadata / "entry_points.txt").write_text(
        "".join(
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in rows.items())
            for group, rows in entry_points().items()
        )
    )
    packages = [str(folder), str(Path(horovod.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, packages))}
