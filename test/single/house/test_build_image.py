"""Which program scripts/build_image.sh builds the image with, and how. Scripts replace the programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import horovod

ROOT = Path(__file__).resolve().parents[3]
NOTES = '#!/bin/sh\n[ "$1" = info ] && exit {engine}\necho "{name} $*" >"$ASKED"\n'


def build(
    folder: Path, programs: dict[str, int], *arguments: str
) -> tuple[subprocess.CompletedProcess[str], str]:
    """The script's output and its commands. programs: name -> exit code of `info`."""
    for name in ("bash", "sed", "git", "dirname"):
        if there := shutil.which(name):  # it does without git
            (folder / name).symlink_to(there)
    for name, engine in programs.items():
        (folder / name).write_text(NOTES.format(name=name, engine=engine))
        (folder / name).chmod(0o755)
    (folder / "sh").symlink_to("/bin/sh")
    asked = folder / "asked"
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "build_image.sh"), *arguments],
        env={**os.environ, "PATH": str(folder), "ASKED": str(asked)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, asked.read_text() if asked.exists() else ""


@pytest.mark.parametrize(
    ("programs", "chosen"),
    [
        ({"docker": 0, "podman": 0, "buildah": 0}, "docker build"),
        ({"docker": 1, "podman": 0, "buildah": 0}, "podman build"),  # the client without an engine
        ({"docker": 1, "buildah": 0}, "buildah bud --layers"),
    ],
)
def test_who_builds(programs: dict[str, int], chosen: str, tmp_path: Path) -> None:
    done, started = build(tmp_path, programs, "name", "--build-arg", "CUDA=1")
    assert done.returncode == 0, done.stderr
    assert started.startswith(f"{chosen} --build-arg VERSION={horovod.__version__} --build-arg REVISION=")
    assert started.endswith(" --build-arg CUDA=1 -t name .\n")


def test_nobody_builds(tmp_path: Path) -> None:
    done, started = build(tmp_path, {"docker": 1})
    assert (done.returncode, started) == (1, "")
    assert "install docker (and start its engine), podman or buildah" in done.stderr


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_image_calls_it() -> None:
    shown = subprocess.run(
        ["make", "-n", "--no-print-directory", "image"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == "bash scripts/build_image.sh horovod"
