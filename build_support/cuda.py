"""The CUDA that the build compiles with: whether it is requested and found, and for which GPUs.

Compiling for GPUs takes minutes, so the build does it only if a GPU is present or CUDA is requested. The
result is a separate library, opened with the first tensor of a GPU: one package serves machines with and
without GPUs. NCCL is found at run time.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from build_support.requirements import BuildError, asks_for_cuda, cuda_setting

OLDEST_CUDA = (12, 0)  # the first whose nvcc supports C++20
OLDEST_GPU = 75  # Turing
GPU_FILE = Path("/dev/nvidia0")  # the driver's
# Without a GPU: machine code for 8.x GPUs; for other GPUs the driver compiles the PTX once.
USUAL_GPU = 80
WITHOUT = "set HOROVOD_WITH_CUDA=0 to build without CUDA"
TRIAL = """#include <cuda_runtime.h>
#include <memory>
template <typename T> concept Number = requires(T x) { x + x; };
template <Number T> __global__ void trial(T* all) { all[0] = 1; }
template __global__ void trial<int>(int*);
"""


@dataclass(frozen=True)
class Cuda:
    nvcc: str
    version: str  # "13.0"
    real: tuple[int, ...]  # compute capabilities with machine code: 90 for 9.0
    virtual: int  # of the PTX, from which the driver makes code for later GPUs

    def cmake_architectures(self) -> str:
        return ";".join([*(f"{number}-real" for number in self.real), f"{self.virtual}-virtual"])

    def record(self) -> str:
        """The text for build_info.json: "13.0; sm_90, PTX 75"."""
        gpus = [*(f"sm_{number}" for number in self.real), f"PTX {self.virtual}"]
        return f"{self.version}; {', '.join(gpus)}"

    def nccl_record(self) -> str:
        wheel = f"nvidia-nccl-cu{self.version.split('.')[0]}"
        return f"found at run time: HOROVOD_NCCL_LIBRARY, torch's, the {wheel} wheel's, or the system's"


def chosen_cuda(compiler: list[str], environment: Mapping[str, str] = os.environ) -> Cuda | None:
    """The CUDA to build with, or None; prints the choice. BuildError if a requested one is missing."""
    asking = asks_for_cuda(environment)
    cuda, why = None, "HOROVOD_WITH_CUDA=0"
    if asking:
        cuda, why = _usable_cuda(compiler, environment), asking
    elif cuda_setting(environment) == "auto":
        try:
            cuda, why = _cuda_for_a_gpu(compiler, environment)
        except BuildError as error:
            why = str(error)
    print(f"horovod: building {f'with CUDA {cuda.record()}' if cuda else 'without CUDA'}: {why}", flush=True)
    return cuda


def _usable_cuda(compiler: list[str], environment: Mapping[str, str]) -> Cuda:
    nvcc = find_nvcc(environment)
    if nvcc is None:
        raise BuildError(
            "CUDA was asked for, and no nvcc was found: not in CUDA_HOME, on PATH or in /usr/local/cuda;"
            " install NVIDIA's CUDA toolkit, 12.0 or later, and set CUDA_HOME to its folder"
        )
    cuda = _described(nvcc, environment)
    _check_that_it_compiles(cuda, compiler)
    return cuda


def _cuda_for_a_gpu(compiler: list[str], environment: Mapping[str, str]) -> tuple[Cuda | None, str]:
    """The decision of HOROVOD_WITH_CUDA=auto, and its reason."""
    is_there = find_nvcc(environment) is not None
    if not _gpu_is_present():
        if is_there:
            return None, "nvcc is here, no GPU is; HOROVOD_WITH_CUDA=1 builds for one"
        return None, "there is no GPU here"
    if not is_there:
        return None, "a GPU is here, nvcc is not; to use GPUs, install NVIDIA's CUDA toolkit, 12.0 or later"
    return _usable_cuda(compiler, environment), "a GPU is here"


def _gpu_is_present() -> bool:
    """Whether a driver is present. Its device file exists even without nvidia-smi."""
    return bool(_native_gpus()) or GPU_FILE.exists()


def find_nvcc(environment: Mapping[str, str] = os.environ) -> str | None:
    """nvcc of HOROVOD_CUDA_HOME or CUDA_HOME, else on PATH, else of /usr/local/cuda."""
    for variable in ("HOROVOD_CUDA_HOME", "CUDA_HOME"):
        if home := environment.get(variable, ""):
            nvcc = Path(home) / "bin" / "nvcc"
            if not os.access(nvcc, os.X_OK):
                raise BuildError(f"{variable}={home} has no bin/nvcc; set it to the folder of a CUDA toolkit")
            return str(nvcc)
    usual = Path("/usr/local/cuda/bin/nvcc")
    on_path = shutil.which("nvcc", path=environment.get("PATH"))
    return on_path or (str(usual) if os.access(usual, os.X_OK) else None)


def _described(nvcc: str, environment: Mapping[str, str]) -> Cuda:
    found = re.search(r"release (\d+)\.(\d+)", _answer(nvcc, "--version"))
    if found is None:
        raise BuildError(f"{nvcc} does not say its version; set CUDA_HOME to a CUDA toolkit, or {WITHOUT}")
    version = f"{found[1]}.{found[2]}"
    if (int(found[1]), int(found[2])) < OLDEST_CUDA:
        raise BuildError(
            f"{nvcc} is of CUDA {version}, and 12.0 or later is needed; set CUDA_HOME to one, or {WITHOUT}"
        )
    known = sorted(
        {int(number) for number in re.findall(r"compute_(\d+)\b", _answer(nvcc, "--list-gpu-arch"))}
    )
    if not known:
        raise BuildError(
            f"{nvcc} does not list the GPUs it knows; set CUDA_HOME to another CUDA toolkit, or {WITHOUT}"
        )
    real, virtual = architectures(known, _cc_list(environment), _native_gpus())
    return Cuda(nvcc, version, real, virtual)


def architectures(known: list[int], asked: str, native: list[int]) -> tuple[tuple[int, ...], int]:
    """GPUs for machine code and for the PTX: the requested ones, else this machine's and PTX for others."""
    if asked:
        numbers = sorted({_capability(word) for word in asked.split(",")})
        if wrong := [number for number in numbers if number not in known]:
            raise BuildError(
                f"HOROVOD_BUILD_CUDA_CC_LIST={asked}: nvcc cannot compile for {', '.join(map(str, wrong))};"
                f" it knows {', '.join(map(str, known))}"
            )
        if numbers[0] < OLDEST_GPU:
            raise BuildError(f"HOROVOD_BUILD_CUDA_CC_LIST={asked}: GPUs from {OLDEST_GPU} on are served")
        return tuple(numbers), numbers[-1]
    virtual = min(number for number in known if number >= OLDEST_GPU)
    wanted = native or [USUAL_GPU]
    return tuple(
        number for number in sorted(set(wanted)) if number in known and number >= OLDEST_GPU
    ), virtual


def _capability(word: str) -> int:
    digits = word.strip().replace(".", "")
    if not digits.isdigit():
        raise BuildError(
            f"HOROVOD_BUILD_CUDA_CC_LIST: {word.strip()!r} is no compute capability; an example is 75,86,90"
        )
    return int(digits)


def _cc_list(environment: Mapping[str, str]) -> str:
    return environment.get("HOROVOD_BUILD_CUDA_CC_LIST", "").strip()


def _native_gpus() -> list[int]:
    """Compute capabilities of this machine's GPUs; [] without a driver."""
    if shutil.which("nvidia-smi") is None:
        return []
    answer = _answer("nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader")
    return [int(f"{major}{minor}") for major, minor in re.findall(r"^(\d+)\.(\d+)$", answer, re.MULTILINE)]


def _answer(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


@functools.lru_cache(maxsize=8)
def _trial_error(nvcc: str, compiler: str, virtual: int) -> str:
    """nvcc's error for a kernel of a few lines, perhaps because it does not know the compiler, or ""."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "trial.cu"
        source.write_text(TRIAL)
        command = [nvcc, "-std=c++20", "-ccbin", compiler, f"-arch=compute_{virtual}", "-c", str(source)]
        done = subprocess.run(
            [*command, "-o", f"{folder}/trial.o"], capture_output=True, text=True, check=False
        )
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "error" in line.lower()]
        return "" if done.returncode == 0 else (lines or [f"exit status {done.returncode}"])[0]


def _check_that_it_compiles(cuda: Cuda, compiler: list[str]) -> None:
    if error := _trial_error(cuda.nvcc, compiler[0], cuda.virtual):
        raise BuildError(
            f"{cuda.nvcc} cannot compile with {compiler[0]}: {error}; set CXX to a compiler that CUDA"
            f" {cuda.version} knows, or {WITHOUT}"
        )
