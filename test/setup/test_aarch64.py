"""The wheel for aarch64, cross-compiled here, in a Python for aarch64 under qemu: its scalar kernels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from clean_shell import ROOT

sys.path += [str(ROOT), str(ROOT / "scripts")]

import aarch64_python
import make_wheels

COMPILER = "aarch64-linux-gnu-g++-12"
BUILDER = make_wheels.find_interpreter(make_wheels.STABLE)
pytestmark = [
    pytest.mark.slow,  # compiles all files, and qemu translates each instruction
    pytest.mark.timeout(3600),
    pytest.mark.skipif(aarch64_python.qemu() is None, reason="no qemu-aarch64-static on this machine"),
    pytest.mark.skipif(make_wheels.shutil.which(COMPILER) is None, reason=f"no {COMPILER} on this machine"),
    pytest.mark.skipif(BUILDER is None, reason=f"no Python {make_wheels.STABLE} on this machine"),
]
# Tests without torch and other processes: the codecs byte by byte against their NumPy twins.
TESTS = (
    *("codec/test_codec_native", "codec/test_codec_tails", "codec/test_codec_stochastic"),
    *("collective/test_draws", "collective/test_feedback"),
)


@pytest.fixture(scope="module")
def place() -> Path:
    folder = ROOT / "build" / "test_aarch64"
    wheel = make_wheels.build_wheel(
        str(BUILDER), make_wheels.Release("aarch64"), folder / "work", folder / "dist"
    )
    aarch64_python.make(folder, wheel)
    return folder


def run(place: Path, *words: str) -> str:
    done = subprocess.run(
        aarch64_python.command(place, *words),
        cwd=ROOT / "test",  # its parent folder has a horovod of another machine
        env=aarch64_python.environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=3000,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_it_loads(place: Path) -> None:
    code = "import platform, horovod; from horovod import _native as n; "
    code += "print(platform.machine(), n.simd_levels(), horovod.__file__, sep=';')"
    machine, levels, file = run(place, "-c", code).split(";")
    assert (machine, levels) == ("aarch64", "['scalar', 'baseline']")
    assert Path(file).is_relative_to(place)


def test_its_codecs_have_the_same_bytes(place: Path) -> None:
    files = [f"single/{name}.py" for name in TESTS]
    options = ["-q", "-p", "no:cacheprovider", "-o", "timeout=0", "--confcutdir", "single"]
    said = run(place, "-m", "pytest", *options, "-o", "addopts=", *files)
    assert " passed" in said and " failed" not in said, said[-2000:]
