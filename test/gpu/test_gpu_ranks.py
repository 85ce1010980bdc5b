"""horovod.torch on one real GPU that 1, 2 and 4 ranks share: NCCL for one rank, the host between several.

The same tests run on emulated GPUs, with a rank on each, in test/parallel/test_emulated_gpu.py.
"""

import pytest
import real_gpu

real_gpu.need_one()

from gpu_jobs import ALONE, FILES  # noqa: E402
from rank_jobs import run_test_files  # noqa: E402

LIMIT = 300.0  # seconds: every rank takes some to start CUDA


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("np", "algorithm"), [(1, "auto"), (2, "scatter"), (4, "scatter")])
def test_in_ranks(np: int, algorithm: str) -> None:
    files = [FILES[name] for name in (ALONE if np == 1 else FILES)]
    run_test_files(np, files, LIMIT, HOROVOD_ALLREDUCE_ALGORITHM=algorithm, HOROVOD_TEST_GPU="1")


@pytest.mark.timeout(LIMIT + 30)
def test_one_rank_by_nccl_and_by_the_host() -> None:
    for transport in ("nccl", "host"):
        run_test_files(
            1, [FILES["compression"]], LIMIT, HOROVOD_GPU_TRANSPORT=transport, HOROVOD_TEST_GPU="1"
        )
