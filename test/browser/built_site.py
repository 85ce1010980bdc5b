"""Builds the documentation site for tests, as `make docs` does: strictly."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("mkdocs", "material", "mkdocstrings")  # what the extra `docs` brings


def build(folder: Path) -> Path:
    """The site, in this folder. Fails on any warning; skips where MkDocs is not installed."""
    for package in NEEDED:
        pytest.importorskip(package, reason=f"{package} is not installed: pip install 'horovod[docs]'")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder
