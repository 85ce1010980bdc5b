"""libhorovod_cuda.so as scripts/check_cuda.py built it: what it links and says without a driver."""

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

pytestmark = [
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


@pytest.fixture(scope="module")
def package() -> Path:
    """The package with CUDA: minutes, and seconds where the sources are as they were."""
    run = subprocess.run([sys.executable, check_cuda.__file__], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout[-4000:]
    return check_cuda.PACKAGE


def test_what_the_build_recorded(package: Path) -> None:
    facts = json.loads((package / "build_info.json").read_text())
    assert re.fullmatch(r"\d+\.\d+; (sm_\d+, )*PTX \d+", facts["cuda"])
    assert facts["nccl"].startswith("found at run time: ")


def test_it_needs_no_cuda_to_be_loaded(package: Path) -> None:
    """The runtime is inside, NCCL and the driver are opened at run time, and nothing is left undefined."""
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
    assert run.stdout.startswith("InvalidArgument: CUDA does not work on this machine: ")
    assert "nvidia-smi" in run.stdout
