"""The software of a host or a rank, and the consequences if the hosts of one job differ.

Another release of this package, or another core, is refused: ranks would misread messages, and replicas would
drift apart. Another PyTorch or Python is unwise, as results may differ, and causes a warning. Imports no core
and no torch: the launcher uses this, and its agent on other hosts.
"""

from __future__ import annotations

import platform
import site
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import horovod
from horovod.common.build_info import build_info

Facts = Mapping[str, str]  # "" for unknown, which is not compared
REFUSED, WARNED = ("horovod", "core"), ("PyTorch", "Python")
_MOST_SHOWN = 8  # hosts or ranks that have one version


def installed() -> dict[str, str]:
    """This host's versions, without importing the software. The core's is the digest of its sources."""
    return {
        "horovod": horovod.__version__,
        "core": build_info().digest,
        "PyTorch": _version_of_torch(),
        "Python": platform.python_version(),
    }


def build_name() -> str:
    """Release and core, as "0.29.0 (a43ad53123b8e2dc)"."""
    return f"{horovod.__version__} ({build_info().digest})"


def loaded() -> dict[str, str]:
    """This process' versions. Cores have been compared when the ranks met."""
    return {
        "horovod": horovod.__version__,
        "PyTorch": str(getattr(sys.modules.get("torch"), "__version__", "")),
        "Python": platform.python_version(),
    }


def checked(facts: Any) -> Facts:
    """The facts. ValueError unless they are versions by name."""
    if not isinstance(facts, dict) or not all(isinstance(text, str) for text in (*facts, *facts.values())):
        raise ValueError(f"no versions: {facts!r:.80}")
    return facts


def refusal(facts: Mapping[str, Facts]) -> str:
    """Differences, by host or rank, in versions that must be equal; "" without any."""
    return "; ".join(_differences(facts, REFUSED))


def warning(facts: Mapping[str, Facts]) -> str:
    """Differences in versions that should be equal, with the consequences; "" without any."""
    found = "; ".join(_differences(facts, WARNED))
    return f"{found}: results may differ with them; install the same on all hosts" if found else ""


def _differences(facts: Mapping[str, Facts], names: Sequence[str]) -> list[str]:
    found = []
    for name in names:
        holders: dict[str, list[str]] = {}
        for holder, versions in facts.items():
            if version := versions.get(name, ""):
                holders.setdefault(version, []).append(holder)
        if len(holders) > 1:
            found.append(f"{name} is {', '.join(f'{v} on {_listed(at)}' for v, at in holders.items())}")
    return found


def _listed(holders: Sequence[str]) -> str:
    more = [f"{len(holders) - _MOST_SHOWN} more"] if len(holders) > _MOST_SHOWN else []
    return " and ".join([*holders[:_MOST_SHOWN], *more])


def _version_of_torch() -> str:
    """The version of torch where a Python without PYTHONPATH finds packages, as the agent runs without it.

    Read from its folder's name: loading importlib.metadata takes a tenth of the time to start a job.
    """
    for folder in (*site.getsitepackages(), site.getusersitepackages()):
        for kind in ("dist", "egg"):
            for found in Path(folder).glob(f"torch-*.{kind}-info"):
                return found.stem.split("-")[1]
    return ""
