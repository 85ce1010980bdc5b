"""Builds the package with CUDA, for the oldest GPU that is served; its warnings are errors.

    python scripts/check_cuda.py --all     # for every GPU that nvcc knows from sm_75 up

CUDA code is compiled here and nowhere else in the tests: test/setup/test_cuda_library.py looks at the result.
The folder is kept, so an unchanged tree costs seconds. No code of ours differs between GPUs, and what the
oldest takes the later ones take; `make test-nightly` builds for them all. Their device code is optimised
for two architectures and assembled for the others: that finds what each of them refuses in a third of the
time. Without nvcc there is nothing to check, which is said and is no error.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path

import show_build

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from build_support.cuda import OLDEST_GPU, find_nvcc  # noqa: E402 -- of the repository, not of the environment

BUILT = ROOT / "build" / "with_cuda"
PACKAGE = BUILT / "lib" / "horovod"
# How GPUs divide, take roots and treat the smallest numbers; nvcc's defaults today.
EXACT = "-ftz=false -prec-div=true -prec-sqrt=true"


def architectures(listed: str) -> list[int]:
    """The numbers in nvcc's list of "sm_90" and the like, from the oldest that is served."""
    numbers = {int(number) for number in re.findall(r"^sm_(\d+)$", listed, re.MULTILINE)}
    return sorted(number for number in numbers if number >= OLDEST_GPU)


def build(numbers: list[int]) -> int:
    """The exit status of the ordinary build for the newest, with machine code for the others besides."""
    code = ",".join(f"sm_{number}" for number in numbers[:-1])
    flags = f"-gencode arch=compute_{OLDEST_GPU},code=[{code}] {EXACT}" if code else EXACT
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD_", "MPICC"))}
    kept |= {"HOROVOD_WITH_CUDA": "1", "HOROVOD_WITHOUT_MPI": "1", "HOROVOD_DEVELOPER": "1"}
    kept |= {"HOROVOD_BUILD_CUDA_CC_LIST": str(numbers[-1]), "CUDAFLAGS": flags}
    # As far below the root as other builds are, for ccache, which knows paths as they are from there.
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
