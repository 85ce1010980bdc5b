"""Compiles the CUDA code with nvcc for every architecture it knows from sm_75 up, and PTX of the newest.

Warnings are errors. Only that it compiled is kept: an unchanged tree costs nothing the next
time. Device code is optimised once, for the oldest architecture, and assembled for each: that finds what each
of them refuses in a third of the time. Without nvcc there is nothing to check, which is said and is no error.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "horovod" / "native"
CHECKED = ROOT / "build" / "cuda_check"  # an empty file for each tree that compiled, named by its hash
OLDEST = 75
# A codec's bytes are defined exactly: no contraction to fused multiply-add, no flushing to zero.
EXACT = ("-fmad=false", "-ftz=false", "-prec-div=true", "-prec-sqrt=true")
DEFINES = (r"-DHOROVOD_DEVICE_INTERFACE=\"checked\"",)  # nvcc hands it to a shell
STRICT = ("-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-fPIC")
FLAGS = ("-std=c++20", "-O3", *EXACT, *DEFINES, *STRICT)


def find_nvcc() -> str | None:
    """nvcc of CUDA_HOME, of the path, or where CUDA is installed by default."""
    home = os.environ.get("CUDA_HOME")
    candidates = [Path(home) / "bin" / "nvcc"] if home else []
    candidates += [Path(found) for found in [shutil.which("nvcc")] if found]
    candidates.append(Path("/usr/local/cuda/bin/nvcc"))
    return next((str(path) for path in candidates if path.exists()), None)


def architectures(listed: str) -> list[int]:
    """The numbers in nvcc's list of "sm_90" and the like, from the oldest that is served."""
    numbers = {int(number) for number in re.findall(r"^sm_(\d+)$", listed, re.MULTILINE)}
    return sorted(number for number in numbers if number >= OLDEST)


def code_flags(numbers: list[int]) -> list[str]:
    oldest, newest = numbers[0], numbers[-1]
    real = ",".join(f"sm_{number}" for number in numbers)
    return [
        *("-gencode", f"arch=compute_{oldest},code=[{real}]"),
        *("-gencode", f"arch=compute_{newest},code=compute_{newest}"),
    ]


def sources() -> list[Path]:
    """Device code, and the host code that is written against CUDA's headers; the longest first."""
    found = [path for path in (NATIVE / "cuda").rglob("*") if path.suffix in (".cu", ".cc")]
    return sorted(found, key=lambda path: (path.suffix != ".cu", path.name != "rotated.cu", path))


def inputs() -> list[Path]:
    folders = [NATIVE / name for name in ("base", "codec", "device", "cuda")]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.is_file())


def digest_of(nvcc_version: str, flags: list[str]) -> str:
    digest = hashlib.sha256(repr((nvcc_version, flags)).encode())
    for path in inputs():
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def compile_file(nvcc: str, source: Path, flags: list[str]) -> str:
    """What nvcc complains about; empty if nothing."""
    with tempfile.TemporaryDirectory() as folder:
        target = ["-c", str(source), "-o", f"{folder}/out.o"]
        command = [nvcc, *FLAGS, *(flags if source.suffix == ".cu" else []), f"-I{NATIVE}", *target]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    return f"{source.relative_to(ROOT)}:\n{done.stdout}{done.stderr}"


def main() -> int:
    nvcc = find_nvcc()
    if nvcc is None:
        print("CUDA code: not checked, there is no nvcc here")
        return 0
    numbers = architectures(_output(nvcc, "--list-gpu-code"))
    flags = code_flags(numbers)
    stamp = CHECKED / digest_of(_output(nvcc, "--version"), [*FLAGS, *flags])
    names = ", ".join(f"sm_{number}" for number in numbers) + f" and PTX {numbers[-1]}"
    if stamp.exists():
        print(f"CUDA code: unchanged since it compiled for {names}")
        return 0
    start = time.monotonic()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        complaints = list(filter(None, pool.map(lambda source: compile_file(nvcc, source, flags), sources())))
    if complaints:
        print("\n".join(complaints))
        return 1
    shutil.rmtree(CHECKED, ignore_errors=True)
    CHECKED.mkdir(parents=True)
    stamp.touch()
    print(f"CUDA code: {len(sources())} files compiled for {names} in {time.monotonic() - start:.0f} s")
    return 0


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
