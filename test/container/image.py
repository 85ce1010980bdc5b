"""Build the image of our Dockerfile with buildah, without an engine or a registry, and run commands in it.

The base that the Dockerfile names (BASE) is a Debian made by debootstrap, kept in build/container between
runs. Images and containers live in a separate storage, removed at the end. To keep it, with the layers of a
build, name a folder in HOROVOD_TEST_IMAGE_STORAGE.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pip_settings

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "container"
KEEP = "HOROVOD_TEST_IMAGE_STORAGE"
SUITE = "bookworm"
BASE = "localhost/debian-made-here"
IMAGE = "localhost/horovod"
# Like Debian's own images: unpacking does not wait for the disk, and descriptions are not fetched.
SETTINGS = {
    "etc/dpkg/dpkg.cfg.d/docker-apt-speedup": "force-unsafe-io\n",
    "etc/apt/apt.conf.d/docker-no-languages": 'Acquire::Languages "none";\n',
}
# Debian's "slim" images exclude these too.
NOT_IN_SLIM = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
CCACHE = """#!/bin/sh
CCACHE_DIR=/run/ccache-files LD_LIBRARY_PATH=/run/ccache exec /run/ccache/bin/ccache "$@"
"""
BUILD_LIMIT = 3600  # seconds, on a busy machine
NOT_STARTED = "sealing memfd copy: Device or resource busy"  # buildah's words
STARTS = 5  # attempts to start a command that reports this
ISOLATION = ("--isolation", "chroot", "--network", "host")


def why_not() -> str:
    """Return why no image can be built on this machine; "" if it can."""
    if os.geteuid() != 0:
        return "building an image without an engine needs root"
    lacking = [name for name in ("buildah", "debootstrap") if shutil.which(name) is None]
    return f"not installed: apt-get install {' '.join(lacking)}" if lacking else ""


def debian() -> Path:
    """Return the root file system of a minimal Debian as one file; debootstrap makes it if it is missing."""
    made = CACHE / f"{SUITE}.tar"
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            root, tar = Path(folder) / "root", Path(folder) / made.name
            _run(["debootstrap", "--variant=minbase", SUITE, str(root), mirror()])
            for unneeded in NOT_IN_SLIM:
                shutil.rmtree(root / unneeded)
                (root / unneeded).mkdir()
            for name, text in SETTINGS.items():
                (root / name).write_text(text)
            _run(["tar", "--create", "--numeric-owner", "--xattrs", f"--file={tar}", "-C", str(root), "."])
            tar.rename(made)
    return made


def mirror() -> str:
    """Return the mirror from which this machine gets its Debian packages."""
    folder = Path("/etc/apt")
    files = [folder / "sources.list", *sorted((folder / "sources.list.d").glob("*"))]
    lines = "\n".join(path.read_text() for path in files if path.is_file())
    found = re.search(r"^(?:URIs:|deb)\s+(?:\[[^\]]*\]\s+)?(https?://\S*debian\S*)", lines, re.MULTILINE)
    return found[1] if found else "http://deb.debian.org/debian"


def _run(command: Sequence[str], limit: float = BUILD_LIMIT) -> str:
    done = _started(command, limit, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        said = (done.stdout + done.stderr)[-6000:]
        raise RuntimeError(f"`{' '.join(command)}` ended with {done.returncode}:\n{said}")
    return done.stdout


def _started(
    command: Sequence[str], limit: float, *, stdout: int, stderr: int
) -> subprocess.CompletedProcess[str]:
    """Run a command, again if buildah could not start itself.

    buildah runs from a copy of its program in memory. A busy kernel may still hold the copy's pages when they
    are to be sealed: buildah then reports it and ends before it has done anything.
    """
    for _ in range(STARTS):
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            text=True,
            errors="replace",
            timeout=limit,
            check=False,
        )
        if not (done.returncode and NOT_STARTED in done.stdout + (done.stderr or "")):
            break
        time.sleep(1)
    return done


class Image:
    """The image, in a separate storage. Use it in a `with` block."""

    def __init__(self) -> None:
        kept = os.environ.get(KEEP)
        self._keeps = bool(kept)
        CACHE.mkdir(parents=True, exist_ok=True)
        self.folder = Path(kept) if kept else Path(tempfile.mkdtemp(prefix="storage-", dir=CACHE))
        self.storage = ["--storage-driver", "overlay"]
        self.storage += ["--root", str(self.folder / "root"), "--runroot", str(self.folder / "run")]

    def __enter__(self) -> Image:
        return self

    def __exit__(self, *_: object) -> None:
        self.buildah("rm", "--all")
        if not self._keeps:
            self.buildah("rmi", "--all", "--force")
            # The storage driver leaves its folder mounted on itself.
            overlay = str(self.folder / "root" / "overlay")
            subprocess.run(["umount", overlay], capture_output=True, check=False)
            shutil.rmtree(self.folder)

    def buildah(self, command: str, *arguments: str, limit: float = BUILD_LIMIT) -> str:
        return _run(["buildah", *self.storage, command, *arguments], limit)

    def build(self, arguments: Sequence[str] = ()) -> str:
        """Build the Dockerfile from a base made here; return the build's output."""
        self._make_base()
        settings = pip_settings.configured()
        bundle = pip_settings.certificates(settings)
        configuration = self.folder / "pip.conf"
        configuration.write_text(pip_settings.text(settings, "/run/ca.crt" if bundle else ""))
        volumes = [f"{configuration}:/etc/pip.conf:ro", *([f"{bundle}:/run/ca.crt:ro"] if bundle else [])]
        volumes += [f"{folder}:{folder}:ro" for folder in pip_settings.folders(settings)]
        words = [word for volume in volumes for word in ("-v", volume)]
        words += self._compilers_cache()
        cached = ["--layers"] if self._keeps else []  # slower, for a storage that is kept
        how = [*cached, "--jobs", "2", "--pull=never", *ISOLATION, *words, "--build-arg", f"BASE={BASE}"]
        return self.buildah("bud", *how, *arguments, "-t", IMAGE, str(ROOT))

    def _compilers_cache(self) -> list[str]:
        """Return options that give a build this machine's ccache, if it has the same Debian and compiler.

        The cache hits if CMake is the same, as on a machine that also has pip's, and the warnings are the
        same.
        """
        program, release = shutil.which("ccache"), Path("/etc/os-release").read_text()
        if program is None or f"VERSION_CODENAME={SUITE}\n" not in release:
            return []
        lent = self.folder / "ccache"
        (lent / "bin").mkdir(parents=True, exist_ok=True)
        shutil.copy2(program, lent / "bin")
        for library in re.findall(r"libhiredis\S* => (/\S+)", _run(["ldd", program])):
            shutil.copy2(library, lent)
        (lent / "launcher").write_text(CCACHE)
        (lent / "launcher").chmod(0o755)
        cache = Path(_run([program, "--get-config", "cache_dir"]).strip())
        cache.mkdir(parents=True, exist_ok=True)
        words = ["-v", f"{lent}:/run/ccache:ro", "-v", f"{cache}:/run/ccache-files"]
        given = ["CMAKE_CXX_COMPILER_LAUNCHER=/run/ccache/launcher"]
        given += [f"{name}={os.environ[name]}" for name in ("HOROVOD_DEVELOPER",) if name in os.environ]
        return words + [word for setting in given for word in ("--build-arg", setting)]

    def _make_base(self) -> None:
        if BASE in self.buildah("images", "--format", "{{.Name}}"):
            return
        container = self.buildah("from", "scratch").strip()
        self.buildah("add", container, str(debian()), "/")
        self.buildah("commit", container, BASE)
        self.buildah("rm", container)

    def description(self) -> dict[str, Any]:
        """Return the configuration of the image, with the OCI's names: User, Env, Labels, ..."""
        shown = json.loads(self.buildah("inspect", "--type", "image", IMAGE))
        return dict(shown["OCIv1"]["config"])

    def size(self) -> int:
        sizes = json.loads(self.buildah("images", "--json", IMAGE))
        return _bytes(sizes[0]["size"])

    def container(self, *options: str) -> Container:
        return Container(self, self.buildah("from", *options, "--pull-never", IMAGE).strip())


def _bytes(text: str) -> int:
    number, unit = text.split()
    return int(float(number) * 1000 ** ["B", "KB", "MB", "GB"].index(unit))


class Container:
    """A container of the image, whose commands run with the image's user, folder and variables."""

    def __init__(self, image: Image, name: str) -> None:
        self.image = image
        self.name = name

    def command(self, command: str, *options: str) -> list[str]:
        """Return the command line that runs a shell line in the container."""
        words = ["buildah", *self.image.storage, "run", *ISOLATION, *options, self.name]
        return [*words, "--", "bash", "-c", command]

    def run(self, command: str, *options: str, limit: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a shell line; stdout and stderr come together. A command that takes too long fails."""
        words = self.command(command, *options)
        return _started(words, limit, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def files(self) -> Path:
        """Return the container's root file system, as a folder of this machine."""
        return Path(self.image.buildah("mount", self.name).strip())


if __name__ == "__main__":  # for people: builds the image and prints the result
    with Image() as built:
        print(built.build(sys.argv[1:]))
        print(f"{built.size() / 1e6:.0f} MB")
