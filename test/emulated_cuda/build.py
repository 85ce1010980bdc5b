"""Build the emulated CUDA and NCCL, and all of libhorovod_cuda.so against them; CMakeLists.txt says how.

The result lies in build/emulated_cuda. It is built once for all tests, and partly again if a source has
changed. A process with AddressSanitizer (scripts/test_sanitized.sh) has an instrumented build. A process with
ThreadSanitizer has not: coroutines would look like threads with no known start.
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
sys.path.append(str(ROOT))  # last, because a sanitized build may precede it

from build_support import requirements  # noqa: E402
from build_support.ccache import ccache_settings, compiler_launcher  # noqa: E402

SANITIZE = "address,undefined" if hasattr(ctypes.CDLL(None), "__asan_init") else ""


def library_path() -> Path:
    """Return libhorovod_cuda_emulated.so, for use_device_library()."""
    return _built() / "libhorovod_cuda_emulated.so"


def runtime_path() -> Path:
    """Return libcudart_emulated.so, for tests that call the runtime themselves."""
    return _built() / "libcudart_emulated.so"


def nccl_path() -> Path:
    """Return libnccl_emulated.so, for HOROVOD_NCCL_LIBRARY."""
    return _built() / "libnccl_emulated.so"


def trials_path() -> Path:
    """Return libtrials_emulated.so: kernels with results that test_emulated_cuda.py knows."""
    return _built() / "libtrials_emulated.so"


@functools.cache
def _built() -> Path:
    """Return the folder of the libraries; wait while another process builds them."""
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
    except requirements.BuildError as error:  # as in our image, which has no compiler
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
    """Return the digest that the package's CMakeLists.txt computes, which must match _native's."""
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
