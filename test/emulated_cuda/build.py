"""Builds the emulated CUDA and NCCL and, against them, all of libhorovod_cuda.so. Standard library only.

The result lies in build/emulated_cuda/<hash of everything that went in>, and is built once. A process with
AddressSanitizer (scripts/test_sanitized.sh) has an instrumented one. One with ThreadSanitizer has not: to it
coroutines would be threads that nobody has started.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "horovod" / "native"
KEPT = 3  # builds, of which the others are removed
COMPILER = os.environ.get("CXX", "g++").split()
FLAGS = (
    "-std=c++20",
    "-O2",
    "-g1",
    "-fPIC",
    "-fvisibility=hidden",
    "-pthread",
    "-Wall",
    "-Wextra",
    "-Werror",
)
IS_SANITIZED = hasattr(ctypes.CDLL(None), "__asan_init")
SANITIZED = ("-fsanitize=address,undefined", "-O1", "-fno-omit-frame-pointer") if IS_SANITIZED else ()
# A kernel's bytes are defined exactly, as a codec's are; .cu files are C++ here.
EXACT = ("-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math", "-Wno-unknown-pragmas")


@dataclass(frozen=True)
class Library:
    """A shared library: what it is made of and which of the others it needs."""

    name: str
    sources: Sequence[Path]
    needs: Sequence[str] = ()


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


def _libraries() -> list[Library]:
    cuda = [path for path in sorted((NATIVE / "cuda").rglob("*")) if path.suffix in (".cc", ".cu")]
    # What only _native needs: it opens the library, and knows codecs by name.
    native_only = ("open.cc", "device_codec.cc")
    device = [path for path in sorted((NATIVE / "device").glob("*.cc")) if path.name not in native_only]
    base = sorted((NATIVE / "base").glob("*.cc"))
    return [
        Library("libcudart_emulated.so", sorted((HERE / "runtime").glob("*.cc"))),
        Library("libnccl_emulated.so", sorted((HERE / "nccl").glob("*.cc")), ["libcudart_emulated.so"]),
        Library(
            "libtrials_emulated.so",
            [
                *sorted((HERE / "trials").glob("*.cc")),
                NATIVE / "cuda" / "check.cc",
                NATIVE / "device" / "open.cc",
            ],
            ["libcudart_emulated.so"],
        ),
        Library("libhorovod_cuda_emulated.so", [*cuda, *device, *base], ["libcudart_emulated.so"]),
    ]


def _inputs() -> list[Path]:
    folders = [HERE, *(NATIVE / name for name in ("base", "codec", "device", "cuda"))]
    suffixes = (".h", ".cc", ".cu", ".cuh", ".py")
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes)


def _digest() -> str:
    digest = hashlib.sha256(
        repr((COMPILER, FLAGS, SANITIZED, EXACT, os.environ.get("EMULATED_CUDA_FLAGS", ""))).encode()
    )
    for path in _inputs():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _built() -> Path:
    """The folder with the libraries; waits while another process builds the same."""
    cache = ROOT / "build" / "emulated_cuda"
    folder = cache / _digest()
    if (folder / "done").exists():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _build(cache, folder)
    return folder


def _device_interface() -> str:
    """As CMakeLists.txt computes it: what must be the same in _native."""
    headers = sorted((NATIVE / "device").glob("*.h"))
    digests = "".join(hashlib.sha256(header.read_bytes()).hexdigest() for header in headers)
    return hashlib.sha256(digests.encode()).hexdigest()[:16]


def _build(cache: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    objects = cache / "objects"  # by the hash of the preprocessed text, so that an edit compiles little
    objects.mkdir(exist_ok=True)
    with ThreadPoolExecutor(min(2, len(os.sched_getaffinity(0)))) as pool:
        for library in _libraries():
            files = list(pool.map(lambda source: _object(source, objects), library.sources))
            needs = [str(folder / name) for name in library.needs]
            _run([*_compiler(), "-shared", "-o", str(folder / library.name), *map(str, files), *needs,
                  "-Wl,--no-undefined", "-Wl,-rpath,$ORIGIN", "-ldl", "-lrt"])  # fmt: skip
    (folder / "done").touch()
    _forget_old_builds(cache, folder)


def _compiler() -> list[str]:
    return [*COMPILER, *FLAGS, *SANITIZED, *os.environ.get("EMULATED_CUDA_FLAGS", "").split()]


def _object(source: Path, objects: Path) -> Path:
    include = [f"-I{NATIVE}", f"-I{HERE / 'include'}"]
    defines = ['-DHOROVOD_VERSION="emulated"']
    if source.name in ("open.cc", "library.cc"):
        defines.append(f'-DHOROVOD_DEVICE_INTERFACE="{_device_interface()}"')
    language = ["-x", "c++"] if source.suffix == ".cu" else []
    command = [*_compiler(), *EXACT, *include, *defines, *language]
    text = _run([*command, "-E", str(source)])
    target = objects / (hashlib.sha256(repr(command).encode() + text.encode()).hexdigest()[:24] + ".o")
    if not target.exists():
        fresh = target.with_suffix(f".{os.getpid()}.o")
        _run([*command, "-c", str(source), "-o", str(fresh)])
        os.replace(fresh, target)
    return target


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stderr}")
    return done.stdout


def _forget_old_builds(cache: Path, newest: Path) -> None:
    builds = sorted((path.parent for path in cache.glob("*/done")), key=lambda path: path.stat().st_mtime)
    for folder in builds[:-KEPT]:
        if folder != newest:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    print(library_path())
