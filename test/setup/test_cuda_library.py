"""libhorovod_cuda.so as scripts/check_cuda.py built it: its links, and its error without a driver."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from clean_shell import ROOT

sys.path += [str(ROOT), str(ROOT / "scripts")]

import check_cuda

from build_support.cuda import find_nvcc

EMULATION = ROOT / "test" / "emulated_cuda"
KERNELS = ROOT / "horovod" / "native" / "cuda" / "kernels"
# A minimum or maximum that also sets a predicate register.
FLAGGED = re.compile(r"VIMNMX\S* R\d+, U?P\d")

pytestmark = [
    pytest.mark.slow,  # nvcc compiles for all GPUs
    pytest.mark.timeout(3000),
    pytest.mark.skipif(find_nvcc() is None, reason="no nvcc on this machine"),
]

WITHOUT_A_DRIVER = """
import ctypes, sys
sys.path.insert(0, sys.argv[1])
import build
library = ctypes.CDLL(str(build.trials_path()))
library.device_use.restype = library.device_count.restype = ctypes.c_char_p
assert library.device_use(sys.argv[2].encode()) is None
assert library.device_is_installed() == 1
count = ctypes.c_int()
print((library.device_count(ctypes.byref(count)) or b"it works").decode())
"""


def disassembler() -> Path:
    """Return the disassembler of the nvidia-cuda-nvdisasm package, of any CUDA."""
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in spec.submodule_search_locations or []] if spec else []
    found = [path for folder in folders for path in folder.glob("*/bin/nvdisasm")]
    if not found:
        pytest.skip("no nvdisasm here: pip install nvidia-cuda-nvdisasm")
    return found[0]


@pytest.fixture(scope="module")
def package() -> Path:
    """The package with CUDA: a build of minutes, or seconds if the sources are unchanged."""
    run = subprocess.run([sys.executable, check_cuda.__file__], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    return check_cuda.PACKAGE


def test_what_the_build_recorded(package: Path) -> None:
    facts = json.loads((package / "build_info.json").read_text())
    assert re.fullmatch(r"\d+\.\d+; (sm_\d+, )*PTX \d+", facts["cuda"])
    assert facts["nccl"].startswith("found at run time: ")


def test_it_needs_no_cuda_to_be_loaded(package: Path) -> None:
    """The runtime is linked statically, NCCL and the driver open at run time, no symbol is undefined."""
    library = str(package / "libhorovod_cuda.so")
    dynamic = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"NEEDED.*\[(.+)\]", dynamic)
    assert needed and not [name for name in needed if re.match("lib(cuda|nccl|python|torch)", name)]
    resolved = subprocess.run(["ldd", "-r", library], capture_output=True, text=True, check=False)
    assert "undefined symbol" not in resolved.stdout + resolved.stderr
    symbols = ["nm", "--dynamic", "--defined-only", library]
    exported = subprocess.run(symbols, capture_output=True, text=True, check=True).stdout
    assert "hvd_open_device_library" in exported
    assert not re.findall(r"\bcuda[A-Z]\w+", exported), "CUDA's functions would stand in for torch's"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_without_a_driver_it_says_so(package: Path) -> None:
    arguments = [str(EMULATION), str(package / "libhorovod_cuda.so")]
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_DRIVER, *arguments], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("WrongArgument\ncuda_does_not_work\n")
    assert "nvidia-smi" in run.stdout


@pytest.mark.parametrize("kernels", ["sixteen_bit", "plain"])  # the bug occurred in these two
def test_an_h100s_code_takes_no_minimums_flag_for_equality(kernels: str, tmp_path: Path) -> None:
    """ptxas 13.0 miscompiled `min(max(n, 0), 1024) == 1024`: parts of tiles were written as whole tiles.

    An emulation cannot show it, because the PTX is right. See own_tile() in kernels/tile.cuh.
    """
    nvdisasm, nvcc = disassembler(), find_nvcc()
    cubin = tmp_path / "kernels.cubin"
    options = ["-std=c++20", "-fmad=false", "-arch=sm_90", f"-I{ROOT / 'horovod' / 'native'}", "-cubin"]
    subprocess.run([str(nvcc), *options, str(KERNELS / f"{kernels}.cu"), "-o", str(cubin)], check=True)
    code = subprocess.run([str(nvdisasm), str(cubin)], capture_output=True, text=True, check=True).stdout
    assert "VIMNMX" in code and "STG" in code
    assert not FLAGGED.findall(code)
