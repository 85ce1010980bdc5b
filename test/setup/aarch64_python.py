"""A Python for aarch64 on another machine, under qemu, with a wheel and the requirements of its tests.

    python test/setup/aarch64_python.py FOLDER dist/horovod-...-cp312-abi3-...aarch64.whl -m pytest ...

QEMU translates one program. Its C library and Python are Debian's for aarch64, unpacked into a folder, so
this needs neither root nor a change of the kernel. It cannot start other aarch64 programs, so tests that
start processes cannot run. Needs Debian's qemu-user-static.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))

import make_wheels

DEBIAN, PYTHON = "trixie", "3.13"
PACKAGES = (
    "libc6", "libgcc-s1", "libstdc++6", "libexpat1", "zlib1g", "libffi8", "libssl3t64", "libbz2-1.0",
    "liblzma5", "libuuid1", "libsqlite3-0", "libreadline8t64", "libtinfo6", "libcrypt1", "libgomp1",
    "python3.13-minimal", "libpython3.13-minimal", "libpython3.13-stdlib",
)  # fmt: skip
NEEDS = ("numpy", "ml_dtypes", "PyYAML", "psutil", "cloudpickle", "packaging", "pytest", "pytest-timeout",
         "pytest-xdist", "hypothesis")  # fmt: skip


def qemu() -> str | None:
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


def make(folder: Path, wheel: Path, more: Sequence[str] = ()) -> None:
    """Fill folder/root with Debian's part, and folder/site with the wheel, NEEDS and `more` (pip's names)."""
    root, site = folder / "root", folder / "site"
    if not (root / "complete").exists():
        make_wheels.fetch_packages(root, DEBIAN, "arm64", PACKAGES)
        (root / "lib").symlink_to("usr/lib")  # programs look here for the dynamic loader
    shutil.rmtree(site, ignore_errors=True)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", site, "--python-version", PYTHON]
    platforms = ("manylinux_2_31_aarch64", "manylinux_2_28_aarch64", "manylinux_2_17_aarch64")
    pip += [word for platform in (*platforms, "manylinux2014_aarch64") for word in ("--platform", platform)]
    make_wheels.run([*pip, "--only-binary", ":all:", "--no-compile", *NEEDS])
    make_wheels.run([*pip, "--only-binary", ":all:", "--no-compile", "--no-deps", wheel, *more])


def command(folder: Path, *words: str) -> list[str]:
    """The command that runs the Python in `folder` with these arguments."""
    found = qemu()
    if found is None:
        sys.exit("there is no qemu-aarch64-static; install it: apt-get install qemu-user-static")
    return [found, "-L", str(folder / "root"), str(folder / "root/usr/bin/python3.13"), *words]


def environment(folder: Path) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HOROVOD_", "PYTHON"))}
    return kept | {"PYTHONPATH": str(folder / "site"), "PYTHONDONTWRITEBYTECODE": "1"}


if __name__ == "__main__":
    place = Path(sys.argv[1]).resolve()
    make(place, Path(sys.argv[2]).resolve())
    sys.exit(subprocess.run(command(place, *sys.argv[3:]), env=environment(place), check=False).returncode)
