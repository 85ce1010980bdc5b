"""ccache, if it is installed: a file that was compiled once, even in another clone, is not compiled again."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def compiler_launcher() -> str:
    """The prefix of the compiler's command: $CMAKE_CXX_COMPILER_LAUNCHER, else ccache, else ""."""
    return os.environ.get("CMAKE_CXX_COMPILER_LAUNCHER", shutil.which("ccache") or "")


def ccache_settings() -> dict[str, str]:
    """This environment, with ccache set to ignore clones and locales, and to accept precompiled headers."""
    settings = {
        "CCACHE_BASEDIR": str(ROOT),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_SLOPPINESS": "pch_defines,time_macros,include_file_mtime,include_file_ctime,locale",
    }
    return settings | dict(os.environ)
