"""horovod.torch with real ranks: every file of ranks/, by memory and by messages, with two or four.

Ranks are threads if possible; otherwise processes, which take longer to import torch. Every change is tested
with two ranks. CI has each kind of world with two or four; the others are `slow`.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

import busy
import pytest
from rank_jobs import run_ranks, run_test_file, run_test_files
from threads_as_ranks import run_thread_test_files

RANKS = Path(__file__).parent / "ranks"
QUICK, LATER = pytest.mark.quick, pytest.mark.slow
# Files that need a process for each rank, with the reason.
PROCESSES = {
    "test_api_lifecycle.py": "MPI, forks, and what init() is told by a launcher",
    "test_api_habits.py": "threads and children of the script's own; and the memory of a process",
    "test_operations_in_flight.py": "shared memory between processes, for once; and warnings",
    "test_no_cycles.py": "the collector of a process",
    "test_compression_rules.py::test_scripts_that_say_nothing": "os.environ",
    "test_optimizer.py::test_clipping_pattern_and_its_warning": "warnings",
    "test_sync_batch_norm.py::test_one_operation_forward_and_one_backward": "operations of this rank",
    "test_sync_batch_norm.py::test_frozen_input_and_no_grad": "operations of this rank",
    "test_sync_batch_norm.py::test_training_a_network": "lazy layers draw random numbers in the first step",
}
ALONE = {
    "test_api_timeline.py": "os.environ while a job runs",
    "test_long_run.py": "the memory of a process",
    "test_optimizer_checkpoint.py": "warnings",
    "test_random_programs.py": "what is in flight in shared memory when a program ends",
    "test_random_scripts.py": "os.environ, by which jobs are tuned; ranks leave the job and begin others",
}
# Random tests find more with more ranks; test/single has them with threads, too. The first number is CI's.
RANDOM = {"test_random_programs.py": [4, 2], "test_random_scripts.py": [3, 2, 4]}
ALONE_SIZES = [
    *(pytest.param(file, 2, marks=QUICK) for file in ALONE if file not in RANDOM),
    *(pytest.param(file, 4, marks=LATER) for file in ALONE if file not in RANDOM),
    *((file, first) for file, (first, *_) in RANDOM.items()),
    *(pytest.param(file, np, marks=LATER) for file, (_, *others) in RANDOM.items() for np in others),
]


def files_for_threads() -> list[Path]:
    return [file for file in sorted(RANKS.glob("test_*.py")) if file.name not in {*PROCESSES, *ALONE}]


@pytest.mark.timeout(330)
@pytest.mark.parametrize("np", [pytest.param(2, marks=QUICK), pytest.param(4, marks=LATER)])
def test_in_threads(np: int) -> None:
    alone = [f"test/parallel/ranks/{test}" for test in PROCESSES if "::" in test]
    run_thread_test_files(np, files_for_threads(), alone, 300.0)


@pytest.mark.timeout(330)
@pytest.mark.parametrize(
    ("np", "about"),
    [(2, ("contract", "api", "compression")), *(pytest.param(np, ("",), marks=LATER) for np in (2, 4))],
    ids=["operations-2", "2", "4"],
)
def test_in_threads_over_tcp(np: int, about: tuple[str, ...]) -> None:
    """Operations and codecs; optimizers and states make the same use of them over memory."""
    alone = [f"test/parallel/ranks/{test}" for test in PROCESSES if "::" in test]
    files = [file for file in files_for_threads() if file.name.startswith(tuple(f"test_{a}" for a in about))]
    run_thread_test_files(np, files, alone, 300.0, "tcp")


@pytest.mark.timeout(330)
@pytest.mark.parametrize("np", [pytest.param(2, marks=QUICK), 4])
def test_in_processes(np: int) -> None:
    run_test_files(np, [RANKS / test for test in PROCESSES], 300.0)


@pytest.mark.timeout(330)
@pytest.mark.parametrize(("file", "np"), ALONE_SIZES)
def test_in_processes_of_its_own(file: str, np: int) -> None:
    run_test_file(np, RANKS / file, 300.0)


def unused_memory() -> set[str]:
    """Return unmapped files of shared memory. Jobs of other tests come and go in the meantime."""
    names = set(os.listdir("/dev/shm"))
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # that process has ended
            names -= {name for name in names if f"/dev/shm/{name}" in maps.read_text()}
    return names


def test_nothing_is_left_in_shared_memory() -> None:
    before = unused_memory()
    code = "import torch, horovod.torch as hvd; hvd.init(); hvd.allreduce(torch.ones(10**6))"
    for end in ("; hvd.shutdown()", "", "; raise SystemExit(3)"):
        run_ranks(2, [sys.executable, "-c", code + end])
        deadline = busy.limit(5)  # another job may be creating a file
        while (left := unused_memory() - before) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not left


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    ("name", "np", "transport"),
    [
        pytest.param("test_operations_in_flight.py", 2, "mpi", marks=QUICK),
        pytest.param("test_operations_in_flight.py", 2, "tcp", marks=QUICK),
        ("test_contract_compression.py", 4, "mpi"),
        pytest.param("test_contract_compression.py", 4, "tcp", marks=LATER),
        pytest.param("test_contract.py", 2, "mpi", marks=LATER),
        pytest.param("test_contract.py", 2, "tcp", marks=LATER),
    ],
)
def test_in_ranks_that_exchange_messages(name: str, np: int, transport: str) -> None:
    run_test_file(np, RANKS / name, HOROVOD_TRANSPORT=transport)
