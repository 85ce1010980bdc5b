"""Checks whether wheels suit other machines: `python scripts/wheel_content.py dist`, a folder of wheels."""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PLUGINS = {"libhorovod_mpi_open_mpi.so", "libhorovod_mpi_mpich.so"}
CUDA = "libhorovod_cuda.so"
# Libraries that every Linux has; some machines list the dynamic loader too.
SYSTEM = r"(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux-[\w-]+)\.so\.\d+"
MANYLINUX = r"(?:manylinux_\d+_\d+_\w+\.?)+"
LARGEST = 25_000_000  # bytes; a larger wheel with CUDA would have to be split


def problems(wheel: Path, platform: str = MANYLINUX, with_cuda: bool = False) -> list[str]:
    """Problems of a wheel, in words; [] without any.

    `platform`: a pattern for the last part of its name. `with_cuda`: the wheel must have code for GPUs;
    otherwise it may have it.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    found = [*_of_names(wheel.name, set(files), platform), *_of_record(files)]
    if with_cuda and f"horovod/{CUDA}" not in files:
        found.append(f"{CUDA} is missing")
    for name, content in files.items():
        if name.endswith(".so"):
            foreign = [each for each in _needed(content) if not re.fullmatch(SYSTEM, each)]
            found += [f"{name} needs {each}" for each in foreign]
    if wheel.stat().st_size > LARGEST:
        found.append(f"{wheel.stat().st_size} bytes are more than {LARGEST}")
    return found


def _of_names(wheel: str, names: set[str], platform: str) -> list[str]:
    libraries = {Path(name).name for name in names if ".so" in Path(name).name}
    modules = {name for name in libraries if name.startswith("_native.")}
    found = [f"{name} is not ours" for name in sorted(libraries - modules - PLUGINS - {CUDA})]
    found += [f"{name} is missing" for name in sorted(PLUGINS - libraries)]
    found += [f"{name} belongs to the sources" for name in sorted(names) if "/native/" in name]
    tags = re.fullmatch(rf"horovod-[^-]+-(cp\d+)-(cp\d+|abi3)-{platform}\.whl", wheel)
    if tags is None:
        return [*found, f"{wheel} has other tags than a wheel for many systems"]
    suffix = ".abi3.so" if tags[2] == "abi3" else f".cpython-{tags[1][2:]}-"
    if len(modules) != 1 or suffix not in next(iter(modules)):
        found.append(f"{', '.join(sorted(modules))} is no module for {tags[1]}-{tags[2]}")
    return found


def _of_record(files: dict[str, bytes]) -> list[str]:
    """Differences from the list with the digest of every file but itself."""
    (name,) = [each for each in files if each.endswith(".dist-info/RECORD")]
    rows = {row[0]: row[1] for row in csv.reader(io.StringIO(files[name].decode())) if row}
    found = [f"RECORD and the archive differ in {each}" for each in sorted(rows.keys() ^ files.keys())]
    for path, digest in rows.items():
        if path in files and path != name and digest != f"sha256={_digest(files[path])}":
            found.append(f"{path} is not what RECORD says")
    return found


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def _needed(library: bytes) -> list[str]:
    with tempfile.NamedTemporaryFile() as file:
        file.write(library)
        file.flush()
        command = ["readelf", "--dynamic", "--wide", file.name]
        report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", report)


def _not_of(tag: str, wheel: Path) -> list[str]:
    """The problem if a wheel has not the version of a tag ("v" and a version; "" for any)."""
    version = wheel.name.split("-")[1].partition("+")[0]
    return [f"it is not of the tag {tag}"] if tag not in ("", f"v{version}") else []


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Look for what must not be in wheels.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--tag", default="", help="their version, after a v")
    options = parser.parse_args(words)
    wheels = [wheel for folder in options.folders for wheel in sorted(folder.glob("*.whl"))]
    complaints = [] if wheels else ["there are no wheels"]
    for wheel in wheels:
        complaints += [f"{wheel.name}: {each}" for each in [*problems(wheel), *_not_of(options.tag, wheel)]]
    print("\n".join(complaints or [f"{len(wheels)} wheels are as they should be"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
