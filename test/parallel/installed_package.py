"""This checkout's package as an installed one: with metadata, by which torch finds its entry point.

The package that is installed may be of another checkout, or older than pyproject.toml. What comes first in
PYTHONPATH counts, of a package's metadata as of its modules.
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
    """Group -> name -> object, as pyproject.toml has them."""
    tables = _TABLE.findall((ROOT / "pyproject.toml").read_text())
    return {group: dict(re.findall(r'^(\w+) = "(.+)"$', rows, re.MULTILINE)) for group, rows in tables}


def environment_with_metadata(folder: Path) -> dict[str, str]:
    """Writes the package's metadata to ``folder``; returns the variables with which processes find them."""
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
