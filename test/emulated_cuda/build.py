"""Builds the emulated CUDA and NCCL and, against them, all of libhorovod_cuda.so; how is in CMakeLists.txt.

The result lies in build/emulated_cuda. It is built once for all tests, and in part again when a source has
changed. A process with AddressSanitizer (scripts/test_sanitized.sh) has an instrumented one. One with
ThreadSanitizer has not: to it coroutines would be threads that nobody has started.
"""

from __future__ import annotations

import ctypes
import fcntl
import functools
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.append(str(ROOT))  # last: a sanitized build may stand before it

from build_support import requirements  # noqa: E402
from build_support.ccache import ccache_settings, compiler_launcher  # noqa: E402

SANITIZE = "address,undefined" if hasattr(ctypes.CDLL(None), "__asan_init") else ""


def library_path() -> Path:
    """libhorovod_cuda_emulated.so, for use_device_library()."""
    return _built() / "libhorovod_cuda_emulated.so"


def runtime_path() -> Path:
    """libcudart_emulated.so, for tests that speak to the runtime themselves."""
    return _built() / "libcudart_emulated.so"


def nccl_path() -> Path:
    """libnccl_emulated.so, for HOROVOD_NCCL_LIBRARY."""
    return _built() / "libnccl_emulated.so"


def trials_path() -> Path:
    """libtrials_emulated.so: kernels of which test_emulated_cuda.py knows what they compute."""
    return _built() / "libtrials_emulated.so"


@functools.cache
def _built() -> Path:
    """The folder with the libraries; waits while another process builds them."""
    folder = ROOT / "build" / "emulated_cuda" / ("sanitized" if SANITIZE else "plain")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _configure(folder)
        _cmake("--build", str(folder), "--parallel", str(len(os.sched_getaffinity(0))))
    return folder / "out"


def _configure(folder: Path) -> None:
    try:
        compiler = requirements.compiler()
    except requirements.BuildError as error:  # as in our image, which ships nothing that compiles
        pytest.skip(f"no GPU can be emulated: {error}", allow_module_level=True)
    settings = {
        "CMAKE_CXX_COMPILER": compiler[0],
        "CMAKE_CXX_FLAGS": " ".join(compiler[1:]),
        "CMAKE_CXX_COMPILER_LAUNCHER": compiler_launcher(),
        "CMAKE_MAKE_PROGRAM": str(requirements.find_tool("ninja")),
        "DEVICE_INTERFACE": _device_interface(),
        "SANITIZE": SANITIZE,
    }
    stamp = folder / "settings"
    if not stamp.exists() or stamp.read_text() != repr(settings):
        (folder / "CMakeCache.txt").unlink(missing_ok=True)
        arguments = [f"-D{name}={value}" for name, value in settings.items()]
        _cmake("-S", str(HERE), "-B", str(folder), "-G", "Ninja", *arguments)
        stamp.write_text(repr(settings))


def _device_interface() -> str:
    """As the package's CMakeLists.txt computes it: what must be the same in _native."""
    native = ROOT / "horovod" / "native"
    others = ("codec/format_list.h", "base/error.h", "base/sentences.h")
    headers = [*sorted((native / "device").glob("*.h")), *(native / name for name in others)]
    digests = "".join(hashlib.sha256(header.read_bytes()).hexdigest() for header in headers)
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


def _cmake(*arguments: str) -> None:
    command = [str(requirements.usable_cmake()), *arguments]
    done = subprocess.run(command, env=ccache_settings(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout[-20000:]}{done.stderr}")


if __name__ == "__main__":
    print(library_path())
