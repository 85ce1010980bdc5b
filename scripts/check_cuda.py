"""Builds the package with CUDA, for the oldest supported GPU; warnings are errors.

    python scripts/check_cuda.py --all     # for every GPU that nvcc knows from sm_75 up

No other test compiles CUDA code; test/setup/test_cuda_library.py examines the result. The folder is kept, so
an unchanged tree takes seconds. Our code does not differ between GPUs, and later GPUs accept the code of the
oldest; `make test-nightly` builds for all of them. Their device code is optimised for two architectures and
assembled for the others, which finds their errors in a third of the time. Without nvcc the script prints
that, and succeeds.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys

import show_build
from repository import ROOT

sys.path.insert(0, str(ROOT))
from build_support.cuda import OLDEST_GPU, find_nvcc

BUILT = ROOT / "build" / "with_cuda"
PACKAGE = BUILT / "lib" / "horovod"
# Exact division, roots and denormal numbers on GPUs; nvcc's defaults today.
EXACT = "-ftz=false -prec-div=true -prec-sqrt=true"


def architectures(listed: str) -> list[int]:
    """The numbers in nvcc's list of "sm_90" and the like, from the oldest supported GPU."""
    numbers = {int(number) for number in re.findall(r"^sm_(\d+)$", listed, re.MULTILINE)}
    return sorted(number for number in numbers if number >= OLDEST_GPU)


def build(numbers: list[int]) -> int:
    """The exit status of the ordinary build for the newest GPU, plus machine code for the others."""
    code = ",".join(f"sm_{number}" for number in numbers[:-1])
    flags = f"-gencode arch=compute_{OLDEST_GPU},code=[{code}] {EXACT}" if code else EXACT
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "MPICC"))}
    kept |= {"HOROVOD_WITH_CUDA": "1", "HOROVOD_WITHOUT_MPI": "1", "HOROVOD_DEVELOPER": "1"}
    kept |= {"HOROVOD_BUILD_CUDA_CC_LIST": str(numbers[-1]), "CUDAFLAGS": flags}
    # At the same depth below the root as other builds, because ccache compares paths relative to it.
    folders = [f"--build-temp={BUILT}", f"--build-base={BUILT}", f"--build-lib={PACKAGE.parent}"]
    return show_build.run([sys.executable, "setup.py", "build", *folders], cwd=ROOT, env=kept)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="for every GPU that nvcc knows, from sm_75 up")
    everything = parser.parse_args().all
    nvcc = find_nvcc()
    if nvcc is None:
        print("CUDA code: not checked, there is no nvcc here")
        return 0
    listed = subprocess.run([nvcc, "--list-gpu-code"], capture_output=True, text=True, check=True).stdout
    numbers = architectures(listed)
    if not everything:
        numbers = numbers[:1]
    status = build(numbers)
    if status == 0:
        print(f"CUDA code: compiled for {', '.join(f'sm_{number}' for number in numbers)}")
    return status


if __name__ == "__main__":
    sys.exit(main())
