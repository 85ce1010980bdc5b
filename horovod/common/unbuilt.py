"""Sources of horovod that are not built, as a fresh clone has them, where Python takes them for the package.

`python -m` and `python -c` look in the current folder first: inside of a clone they import its `horovod/`,
and an installation that would work is never asked. The folder has to be called so, as Horovod's is; so it is
found out here, and said. What needs the native module asks: absent.py's finder, horovodrun and the lab.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

__all__ = ["explanation", "why_unbuilt"]

PACKAGE = Path(__file__).resolve().parents[1]


def why_unbuilt() -> str:
    """Why the package of this process lacks its native module, and what to type; "" where it has it."""
    return "" if _has_native_module(PACKAGE) else explanation(PACKAGE, sys.path, sys.orig_argv)


def explanation(package: Path, search_path: Sequence[str], typed: Sequence[str]) -> str:
    """The same for a package without one. `typed`: how Python was started, as sys.orig_argv has it."""
    folder = package.parent
    others = [other for each in search_path if (other := Path(each or ".").resolve()) != folder]
    installed = next((other for other in others if _has_native_module(other / package.name)), None)
    here = f"{package} lacks its native module"
    if not (folder / "setup.py").exists():
        return f"{here}: the installation is not complete; install horovod again.{_other_pythons(package)}"
    if installed is None:
        return (
            f"{here}: these are its sources, not built, and no other horovod is installed for this Python, "
            f"{sys.executable}. Type `cd {shlex.quote(str(folder))} && python -m pip install -e .` (or `make "
            f"mnist` there, which installs PyTorch too).{_other_pythons(package)}"
        )
    begin = f"{here}: these are its sources, not built, which hide the horovod installed in {installed}"
    if str(folder) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return f"{begin}. Take {folder} out of PYTHONPATH"
    again = f" Or type `{_without_current_folder(typed)}`." if sys.version_info >= (3, 11) else ""
    return (
        f"{begin}: Python looks first in the folder where it is started. Start it elsewhere (`cd ..`), or "
        f"build the sources in place: `python -m pip install -e .`.{again}"
    )


def _has_native_module(package: Path) -> bool:
    """For this Python."""
    return any((package / f"_native{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def _other_pythons(package: Path) -> str:
    there = sorted(path.name for path in package.glob("_native.*.so"))
    return f" It was built for another Python: {', '.join(there)}." if there else ""


def _without_current_folder(typed: Sequence[str]) -> str:
    return shlex.join([*typed[:1], "-P", *typed[1:]])
