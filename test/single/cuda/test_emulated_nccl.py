"""The emulated NCCL through the core's Communicator: processes, errors, abort.

test_device_collectives.py tests its results through the engine.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from ctypes import c_void_p
from pathlib import Path
from typing import TypeVar

import busy
import pytest
from ranks import in_threads

EMULATION = Path(__file__).resolve().parents[2] / "emulated_cuda"
sys.path.insert(0, str(EMULATION))

from device_trials import Communicator, DeviceError, Gpu, make_id, refused_there, trials  # noqa: E402

import build  # noqa: E402

T = TypeVar("T")
PATIENCE = 60.0  # seconds for a whole program of all ranks
SUMMED = [0, 1, *range(3, 8), 9]  # numbers of dtypes


@pytest.fixture(autouse=True)
def emulated_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_NCCL_LIBRARY", str(build.nccl_path()))


def on_ranks(size: int, work: Callable[[Communicator], T]) -> list[T]:
    """The result of the work on each rank; a rank is a thread with its own GPU."""
    unique = make_id()

    def one(rank: int) -> T:
        communicator = Communicator(Gpu(rank), unique, rank, size)
        result = work(communicator)
        communicator.destroy()
        return result

    return in_threads(size, one)


def test_what_nccl_does_not_sum() -> None:
    def work(own: Communicator) -> list[bool]:
        with refused_there("WrongArgument", "nccl_dtype", dtype="int16"):
            own.allreduce(c_void_p(), c_void_p(), 1, 2)
        return [own.serves(number) for number in range(10)]

    (result,) = on_ranks(1, work)
    assert [number for number, is_served in enumerate(result) if is_served] == SUMMED


def test_two_ranks_on_one_gpu_are_refused() -> None:
    unique = make_id()

    def one(rank: int) -> DeviceError:
        with pytest.raises(DeviceError) as caught:
            Communicator(Gpu(0), unique, rank, 2)
        return caught.value

    errors = in_threads(2, one)
    for error in errors:
        assert (error.kind, error.code) == ("DeviceFailure", "nccl_failed")
        assert error.facts["call"] == "ncclCommInitRankConfig"
        assert error.facts["why"].startswith("invalid usage (Duplicate GPU detected")
    assert {error.facts["rank"] for error in errors} == {"0", "1"}


def fail_and_abort(own: Communicator, count: int) -> tuple[str, bool, str]:
    """A sum that hangs: failure()'s result, whether the stream was blocked, and failure()'s later result."""
    memory = own.gpu.allocate(4 * 1000)
    own.allreduce(memory, memory, count, 6)
    event = own.gpu.record(own.stream)
    failure = busy.until(own.failure, PATIENCE)
    stood_still = not own.gpu.is_done(event)
    own.abort()
    own.gpu.synchronize(event)
    return failure, stood_still, own.failure()


def test_ranks_that_disagree_are_told_instead_of_waiting() -> None:
    for failure, stood_still, later in on_ranks(2, lambda own: fail_and_abort(own, 10 + own.rank)):
        assert stood_still
        assert "NCCL: invalid usage (rank" in failure or "NCCL: remote process exited" in failure
        assert later == failure


@pytest.mark.parametrize("operation", [0, 1])
def test_asynchronous_errors(operation: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = tmp_path / "words"
    monkeypatch.setenv("EMULATED_NCCL_ASYNC_FILE", str(words))
    both_made = threading.Barrier(2)

    def work(own: Communicator) -> tuple[str, bool, str]:
        both_made.wait(PATIENCE)
        if own.rank == 0:
            words.write_text(f"1:{operation}:1")
        both_made.wait(PATIENCE)
        if own.rank == 0 or operation == 1:
            return fail_and_abort(own, 100)
        failure = busy.until(own.failure, PATIENCE)
        own.abort()
        return failure, True, own.failure()

    first, second = on_ranks(2, work)
    gone = "NCCL: remote process exited or there was a network error (a peer has aborted)"
    assert second[0] == "NCCL: unhandled cuda error (injected)" == second[2]
    assert first[1] and first[0] == gone


def test_calls_after_abort_are_refused() -> None:
    def work(own: Communicator) -> bool:
        own.abort()
        own.abort()
        memory = own.gpu.allocate(8)
        for name, call in (
            ("ncclAllReduce", lambda: own.allreduce(memory, memory, 1, 6)),
            ("ncclBroadcast", lambda: own.broadcast(memory, 4, 0)),
            (
                "ncclGroupStart",
                lambda: own.exchange([(1 - own.rank, memory, 4)], [(1 - own.rank, memory, 4)]),
            ),
        ):
            with refused_there("DeviceFailure", "nccl_aborted", call=name, rank=str(own.rank)):
                call()
        return True

    assert on_ranks(2, work) == [True, True]


IN_A_PROCESS = f"""
import sys
sys.path.insert(0, {str(EMULATION)!r})
from device_trials import *
"""


def start(program: str, **environment: str) -> "subprocess.Popen[str]":
    settings = {**os.environ, "HOROVOD_NCCL_LIBRARY": str(build.nccl_path()), **environment}
    command = [sys.executable, "-c", IN_A_PROCESS + program]
    return subprocess.Popen(
        command, env=settings, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_processes() -> None:
    program = """
import sys
rank, unique = int(sys.argv[1]) if len(sys.argv) > 1 else RANK, bytes.fromhex(UNIQUE)
own = Communicator(Gpu(rank), unique, rank, 4)
memory = own.gpu.upload(np.full(500_000, rank + 1, np.float32), own.stream)
own.allreduce(memory, memory, 500_000, 6)
print(set(own.gpu.download(memory, 500_000, np.float32, own.stream).tolist()))
own.destroy()
"""
    unique = make_id().hex()
    ranks = [start(f"RANK, UNIQUE = {rank}, {unique!r}\n{program}") for rank in range(4)]
    assert [rank.communicate(timeout=PATIENCE)[0] for rank in ranks] == ["{10.0}\n"] * 4
    assert not list(Path("/dev/shm").glob(bytes.fromhex(unique).split(b"\0")[0].decode().lstrip("/") + "*"))


@pytest.mark.parametrize(
    ("function", "call", "gpu"),
    [
        ("ncclGetUniqueId", "make_id()", ""),
        ("ncclCommInitRankConfig", "make()", ""),
        ("ncclAllReduce", "own.allreduce(memory, memory, 2, 6)", " (Emulated GPU, GPU 0)"),
        ("ncclBroadcast", "own.broadcast(memory, 2, 0)", " (Emulated GPU, GPU 0)"),
        *((f"nccl{name}", "swap()", " (Emulated GPU, GPU 0)") for name in ("Send", "Recv")),
        *((f"nccl{name}", "swap()", " (Emulated GPU, GPU 0)") for name in ("GroupStart", "GroupEnd")),
    ],
)
def test_every_call_that_fails_is_named(function: str, call: str, gpu: str) -> None:
    """Two ranks in one process; the first makes the failing call, and the process continues."""
    program = f"""
import threading
unique = make_id() if {function!r} != "ncclGetUniqueId" else b""
def make():
    return Communicator(Gpu(0), unique, 0, 2)
def swap():
    own.exchange([(1, memory, 4)], [(1, memory, 4)])
try:
    if {function!r} not in ("ncclGetUniqueId", "ncclCommInitRankConfig"):
        threading.Thread(target=lambda: Communicator(Gpu(1), unique, 1, 2), daemon=True).start()
        own = make()
        memory = own.gpu.allocate(8)
    {call}
    print("nothing failed")
except DeviceError as error:
    print(error)
"""
    output = start(program, EMULATED_NCCL_FAIL=f"{function}:1:2").communicate(timeout=PATIENCE)[0]
    error = DeviceError(output.rstrip("\n"))
    assert (error.kind, error.code) == ("DeviceFailure", "nccl_failed"), output
    assert error.facts["why"].startswith("unhandled system error")
    assert error.facts.items() >= {"call": function, "rank": "0", "gpu": gpu}.items(), output


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"HOROVOD_NCCL_LIBRARY": "/nowhere/libnccl.so"}, "=/nowhere/libnccl.so cannot be opened"),
        ({"EMULATED_NCCL_VERSION": "2708"}, "NCCL 2.7.8 ("),
        ({"HOROVOD_NCCL_LIBRARY": "libm.so.6"}, "lacks ncclGetVersion"),
    ],
)
def test_an_nccl_that_cannot_be_used(environment: dict[str, str], words: str) -> None:
    program = """
print(trials().nccl_version(), trials().nccl_why_none().decode())
try:
    make_id()
except DeviceError as error:
    print(error)
"""
    output = start(program, **environment).communicate(timeout=PATIENCE)[0]
    why, _, error = output.partition("\n")
    assert why.startswith("0 ") and words in why and "HOROVOD_NCCL_LIBRARY" in why, output
    assert error.startswith("DeviceFailure\ngpu_failed\n") and words in error


def test_the_version() -> None:
    assert trials().nccl_version() == 22809
