"""horovodrun --check-build: what this installation can do. Imports no torch: that would take seconds."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from horovod.common.build_info import build_info
from horovod.common.unbuilt import why_unbuilt


def report() -> str:
    """Horovod's three blocks of [X] and [ ], and one with versions."""
    info = build_info()
    has_torch = find_spec("torch") is not None
    blocks = {
        "Available Frameworks": {"TensorFlow": False, "PyTorch": has_torch, "MXNet": False},
        "Available Controllers": {"MPI": info.mpi.built, "Gloo": False},
        "Available Tensor Operations": {
            "NCCL": info.nccl is not None and _torch_has_cuda(),
            "DDL": False,
            "CCL": False,
            "MPI": info.mpi.built,
            "Gloo": False,
        },
    }
    lines = [f"Horovod v{info.version}:"]
    for title, entries in blocks.items():
        lines += [
            "",
            f"{title}:",
            *(f"    [{'X' if there else ' '}] {name}" for name, there in entries.items()),
        ]
    mpi = f"{info.mpi.name} {info.mpi.version} ({info.mpi.source}; {info.mpi.mpirun_path()})"
    versions = {
        "Python": platform.python_version(),
        "PyTorch": metadata.version("torch") if has_torch else "not installed",
        "MPI": mpi if info.mpi.built else "none",
        "SIMD": _simd_level(),
        "CUDA": info.cuda or "none",
        "NCCL": _nccl(info.nccl),
        "Compiler": info.compiler or "unknown",
    }
    lines += ["", "Versions:", *(f"    {name}: {version}" for name, version in versions.items())]
    if why := why_unbuilt():
        lines += ["", why]
    return "\n".join(lines)


def _torch_has_cuda() -> bool:
    """Whether the installed PyTorch serves GPUs, as its build has written down in a file."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    record = Path(spec.origin).with_name("version.py")
    return record.exists() and bool(re.search(r"^cuda\b[^=]*=\s*['\"]", record.read_text(), re.MULTILINE))


def _nccl(found: str | None) -> str:
    if found is None:
        return "none"
    return found if _torch_has_cuda() else f"{found}; not used, as this PyTorch is for CPUs alone"


def _simd_level() -> str:
    """Asked of the core in a process of its own: the launcher does not load it."""
    question = "from horovod import _native; print(_native.simd_level())"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return answer.stdout.strip()
    return "the native core does not load: " + (answer.stderr.strip().splitlines() or ["no message"])[-1]
