"""compute-sanitizer finds no invalid access and no race in any kernel that the operations launch."""

import shutil
import sys

import pytest
import real_gpu

real_gpu.need_one()

from gpu_jobs import FILES  # noqa: E402
from rank_jobs import run_ranks  # noqa: E402

SANITIZER = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
LIMIT = 1500.0  # seconds: the sanitizer checks every access


@pytest.mark.slow
@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.skipif(SANITIZER is None, reason="there is no compute-sanitizer")
@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
def test_nothing_is_found(tool: str) -> None:
    assert SANITIZER is not None
    watched = [SANITIZER, "--tool", tool, "--error-exitcode", "9", "--target-processes", "all"]
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "bits",
        str(FILES["compression"]),
    ]
    job = run_ranks(2, [*watched, *tests], LIMIT, {"HOROVOD_GPU_TRANSPORT": "host", "HOROVOD_TEST_GPU": "1"})
    assert job.returncode == 0, job.stdout
    assert job.stdout.count("ERROR SUMMARY: 0 errors") == 2, job.stdout
