"""horovodrun --check-build: reports the abilities of this installation, without importing torch (slow)."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from horovod.common.build_info import ANY, FOUND, MpiInfo, build_info, why_unbuilt
from horovod.common.mpi_here import family_of, mpi_here, version_text

_NOT_LOADED = "the native core does not load"  # shown instead of the SIMD level


def check_build() -> int:
    """Print the report. Return the command's exit status: 1 if this installation cannot train."""
    text = report()
    print(text)
    return 1 if _NOT_LOADED in text else 0


def report() -> str:
    """Return Horovod's three blocks of [X] and [ ], and a block of versions."""
    info = build_info()
    mpi = mpi_here(info.mpi)
    has_torch = find_spec("torch") is not None
    blocks = {
        "Available Frameworks": {"TensorFlow": False, "PyTorch": has_torch, "MXNet": False},
        "Available Controllers": {"MPI": mpi.built, "Gloo": False},
        "Available Tensor Operations": {
            "NCCL": info.nccl is not None and _torch_has_cuda(),
            "DDL": False,
            "CCL": False,
            "MPI": mpi.built,
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
    why = why_unbuilt()
    without_mpi = "none here; horovodrun starts ranks without" if info.mpi.source == ANY else "none"
    versions = {
        "Python": platform.python_version(),
        "PyTorch": metadata.version("torch") if has_torch else "not installed",
        "MPI": _mpi(mpi) if mpi.built else without_mpi,
        "SIMD": f"{_NOT_LOADED}: see below" if why else _simd_level(),
        "CUDA": info.cuda or "none",
        "NCCL": _nccl(info.nccl),
        "Compiler": info.compiler or "unknown",
    }
    lines += ["", "Versions:", *(f"    {name}: {version}" for name, version in versions.items())]
    lines += ["", why] if why else []
    return "\n".join(lines)


def _mpi(mpi: MpiInfo) -> str:
    if mpi.source != FOUND:
        return f"{mpi.name} {mpi.version} ({mpi.source}; {mpi.mpirun_path()})"
    if not mpi.mpirun:
        return f"{mpi.name} ({mpi.library}; its mpirun is not on PATH: --launcher mpi needs it)"
    said = version_text(mpi.mpirun)
    if family_of(said) not in ("", mpi.name):
        return f"{mpi.name} ({mpi.library}; {mpi.mpirun} is of {family_of(said)}, and cannot start its ranks)"
    version = re.search(r"\d+\.\d+(\.\d+)?", said)
    return f"{mpi.name} {version[0] if version else 'of unknown version'} ({mpi.library}; {mpi.mpirun})"


def _torch_has_cuda() -> bool:
    """Whether the installed PyTorch serves GPUs, as its version.py records."""
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
    """Query the core in another process, as the launcher does not load it."""
    question = "from horovod import _native; print(_native.simd_level())"
    answer = subprocess.run([sys.executable, "-c", question], capture_output=True, text=True, check=False)
    if answer.returncode == 0:
        return answer.stdout.strip()
    return f"{_NOT_LOADED}: " + (answer.stderr.strip().splitlines() or ["no message"])[-1]
