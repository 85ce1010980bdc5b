"""horovod.torch's functions on GPUs, with real ranks on emulated GPUs: over NCCL, and through the host.

The files that test/gpu runs on a real GPU run here, and more tests of the CPU, with tensors that count as a
GPU's.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from gpu_jobs import ALONE, FILES, emulated_gpus
from rank_jobs import run_ranks, run_test_files

HERE = Path(__file__).parent
LIMIT = 400.0  # seconds: threads of the host run kernels, for several ranks on two cores


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(
    ("np", "transport", "algorithm", "files"),
    [
        (1, "auto", "auto", ALONE),
        (2, "nccl", "auto", [*FILES]),
        (2, "host", "scatter", ["operations", "errors", "sparse"]),
        pytest.param(2, "host", "scatter", ["compression", "streams"], marks=pytest.mark.slow),
        pytest.param(2, "host", "auto", ["training", "batch norm"], marks=pytest.mark.slow),
        pytest.param(4, "nccl", "scatter", ["compression"], marks=pytest.mark.slow),
        pytest.param(4, "nccl", "scatter", [*FILES], marks=pytest.mark.slow),
        pytest.param(4, "host", "scatter", [*FILES], marks=pytest.mark.slow),
    ],
)
def test_what_runs_on_a_gpu(np: int, transport: str, algorithm: str, files: list[str]) -> None:
    more = {"HOROVOD_GPU_TRANSPORT": transport, "HOROVOD_ALLREDUCE_ALGORITHM": algorithm}
    run_test_files(np, [FILES[name] for name in files], LIMIT, **emulated_gpus(), **more)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.slow
@pytest.mark.parametrize("file", ["operations", "training"])
def test_ranks_that_share_a_gpu_go_by_the_host(file: str) -> None:
    more = {"HOROVOD_TEST_SHARED_GPU": "1", "HOROVOD_ALLREDUCE_ALGORITHM": "scatter"}
    run_test_files(4, [FILES[file]], LIMIT, **emulated_gpus(), **more)


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(
    ("transport", "names"),
    [("nccl", ["api_complex"]), ("host", ["state", "api_complex"])],
)
def test_what_runs_on_a_cpu(transport: str, names: list[str]) -> None:
    """The CPU's tests, with tensors in host memory that count as a GPU's."""
    files = [HERE / "ranks" / f"test_{name}.py" for name in names]
    run_test_files(2, files, LIMIT, **emulated_gpus(), HOROVOD_GPU_TRANSPORT=transport)


KILLED = """
import os, signal, sys, threading, time
import torch
from emulated_torch import asked_for
import horovod.torch as hvd

hvd.init()
asked_for(hvd.local_rank()).install()
xs = [torch.full((3000,), 1.0) for _ in range(40)]

def step(number):
    handles = [
        hvd.allreduce_async_(x, name=f"x{i}", op=hvd.Average, compression=hvd.Compression.bit8)
        for i, x in enumerate(xs)
    ]
    for handle in handles:
        hvd.synchronize(handle)

step(0)
if hvd.rank() == 1:
    threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
try:
    while True:
        step(1)
except hvd.HorovodInternalError as error:
    with open(sys.argv[1] + str(hvd.rank()), "w") as file:
        file.write(str(error))
"""


# mpirun ends the others as soon as one of its processes ends: each waits until all have printed their lines.
AFTER_THE_OTHERS = """
"$@"; code=$?; tries=0
until [ -e "$OTHERS"0 ] && [ -e "$OTHERS"2 ] || [ $((tries += 1)) -gt 300 ]; do sleep 0.1; done
exit $code
"""


@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("transport", ["nccl", "host"])
def test_a_killed_rank_is_an_error_on_the_others(transport: str, tmp_path: Path) -> None:
    """In the middle of operations, with more of them started than a GPU has in flight."""
    script = tmp_path / "killed.py"
    script.write_text(KILLED)
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    more = {"PYTHONPATH": path, "HOROVOD_GPU_TRANSPORT": transport, "HOROVOD_FUSION_THRESHOLD": "0"}
    more["OTHERS"] = str(tmp_path / "rank")
    command = ["sh", "-c", AFTER_THE_OTHERS, "sh", sys.executable, str(script), more["OTHERS"]]
    done = run_ranks(3, command, 120, {**emulated_gpus(), **more})
    assert done.returncode not in (0, 124), done.stdout
    for rank in (0, 2):
        error = tmp_path / f"rank{rank}"
        assert error.exists(), done.stdout
        assert "lost rank" in error.read_text() or "NCCL" in error.read_text()
