"""Run a script whose tensors count as an emulated GPU's: python emulated_run.py SCRIPT [WORDS...]"""

from __future__ import annotations

import os
import runpy
import sys

from emulated_torch import asked_for

if __name__ == "__main__":
    by_mpirun = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", "0")
    gpu = asked_for(int(os.environ.get("HOROVOD_LOCAL_RANK", by_mpirun)))
    assert gpu is not None, "HOROVOD_TEST_EMULATED_GPU is not set"
    gpu.install()
    del sys.argv[0]
    runpy.run_path(sys.argv[0], run_name="__main__")
