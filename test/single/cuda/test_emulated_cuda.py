"""The emulated CUDA, and the core's Device on it: streams, events, memory, kernels, errors."""

import ctypes
import os
import subprocess
import sys
import time
from ctypes import c_float, c_int, c_uint, c_void_p
from pathlib import Path

import numpy as np
import pytest

EMULATION = Path(__file__).resolve().parents[2] / "emulated_cuda"
sys.path.insert(0, str(EMULATION))

from device_trials import Gpu, address_of, refused_there, trials  # noqa: E402

import build  # noqa: E402

build.library_path()  # the import fails if the emulation cannot be built; child processes need it too
FLAG_TIME = 0.05  # seconds; a kernel that did not wait would have run by then


@pytest.fixture(scope="module")
def gpu() -> Gpu:
    return Gpu(0)


@pytest.fixture
def flag(gpu: Gpu) -> c_int:
    """A flag in pinned memory, on which add_when_raised waits."""
    address = gpu.allocate(4, is_pinned=True)
    return c_int.from_address(address.value or 0)


def lowered(flag: c_int) -> c_void_p:
    flag.value = 0
    return c_void_p(ctypes.addressof(flag))


def add_when_raised(memory: c_void_p, count: int, add: float, flag: c_void_p, stream: c_void_p) -> None:
    trials().trial_add_when_raised(memory, count, c_float(add), flag, stream)


def test_devices_have_names_and_identities() -> None:
    gpus = [Gpu(index) for index in range(4)]
    assert {gpu.name for gpu in gpus} == {"Emulated GPU"}
    assert len({gpu.identity for gpu in gpus}) == 4
    assert all(len(gpu.identity) == 40 and gpu.identity.startswith("GPU-") for gpu in gpus)
    assert gpus[0].reaches(gpus[3].identity) and gpus[0].reaches("GPU-of-another-host")


def test_a_gpu_that_is_not_there() -> None:
    with refused_there("WrongArgument", "gpu_unknown", gpu="8", count="8"):
        Gpu(8)


@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 100_003])
def test_kernels_with_shuffles_and_shared_memory(gpu: Gpu, count: int) -> None:
    values = (np.arange(count) % 7).astype(np.float32)
    blocks = count // 256 + 1
    stream = gpu.make_stream()
    memory, sums = gpu.upload(values, stream), gpu.allocate(4 * blocks)
    trials().trial_sum_blocks(memory, count, sums, blocks, 256, stream)
    padded = np.zeros(blocks * 256, np.float32)
    padded[:count] = values
    result = gpu.download(sums, blocks, np.float32, stream)
    assert np.array_equal(result, padded.reshape(blocks, 256).sum(axis=1))


def test_operations_of_warps(gpu: Gpu) -> None:
    stream = gpu.make_stream()
    answers = gpu.allocate(64 * 8 * 4)
    trials().trial_ask_warp(answers, stream)
    rows = gpu.download(answers, 64 * 8, np.uint32, stream).reshape(64, 8)
    for thread, row in enumerate(rows):
        lane = thread % 32
        assert row[:4].tolist() == [50, lane // 8 * 8 + 3, lane ^ 1, 256]
        assert row[4:6].tolist() == [sum(1 << i for i in range(0, 32, 3)), 1]
        assert row[6:].tolist() == [2 if lane < 16 else 1 << 17, thread + 64_000]


def test_threads_of_a_block_exchange_through_dynamic_shared_memory(gpu: Gpu) -> None:
    values = np.arange(300, dtype=np.int32)
    stream, memory, result = gpu.make_stream(), gpu.upload(values), gpu.allocate(1200)
    gpu.finish(None)
    trials().trial_reverse(memory, result, 300, stream)
    assert np.array_equal(gpu.download(result, 300, np.int32, stream), values[::-1])


def test_atomics_of_two_streams(gpu: Gpu) -> None:
    counters = gpu.upload(np.zeros(2, np.uint32))
    gpu.finish(None)
    streams = [gpu.make_stream() for _ in range(2)]
    for blocks, stream in zip((50, 60), streams, strict=True):
        trials().trial_count_up(counters, c_uint(3), blocks, stream)
    for stream in streams:
        gpu.finish(stream)
    assert gpu.download(counters, 2, np.uint32).tolist() == [(50 + 60) * 96 * 3, 59 * 3]


def test_a_stream_keeps_order_and_callers_go_on(gpu: Gpu, flag: c_int) -> None:
    stream = gpu.make_stream()
    memory = gpu.upload(np.ones(8, np.float32), stream)
    raised = lowered(flag)
    begin = gpu.record(stream)
    add_when_raised(memory, 8, 2.0, raised, stream)
    end = gpu.record(stream)
    gpu.synchronize(begin)
    time.sleep(FLAG_TIME)
    assert gpu.is_done(begin) and not gpu.is_done(end)
    flag.value = 1
    gpu.synchronize(end)
    assert gpu.is_done(end) and gpu.milliseconds(begin, end) >= 1000 * FLAG_TIME
    assert gpu.download(memory, 8, np.float32, stream).tolist() == [3.0] * 8


def test_streams_wait_for_events_of_others(gpu: Gpu, flag: c_int) -> None:
    first, second = gpu.make_stream(), gpu.make_stream(is_urgent=True)
    memory = gpu.upload(np.ones(8, np.float32), first)
    copy = gpu.allocate(32)
    add_when_raised(memory, 8, 1.0, lowered(flag), first)
    event = gpu.record(first)
    gpu.wait(second, event)
    gpu.copy(second, copy, memory, 32)
    done = gpu.record(second)
    trials().device_forget_event(event)  # the wait keeps its target, even if the event is recorded again
    gpu.record(gpu.make_stream())
    time.sleep(FLAG_TIME)
    assert not gpu.is_done(done)
    flag.value = 1
    gpu.synchronize(done)
    assert gpu.download(copy, 8, np.float32, second).tolist() == [2.0] * 8


def test_pinned_copies_do_not_wait_and_pageable_ones_do(gpu: Gpu, flag: c_int) -> None:
    stream = gpu.make_stream()
    memory = gpu.upload(np.ones(8, np.float32), stream)
    pinned = gpu.allocate(32, is_pinned=True)
    add_when_raised(memory, 8, 1.0, lowered(flag), stream)
    begin = time.monotonic()
    gpu.copy(stream, pinned, memory, 32)  # returns while the kernel is still waiting
    assert time.monotonic() - begin < 5
    held = np.frombuffer((ctypes.c_char * 32).from_address(pinned.value or 0), np.float32)
    assert held[0] != 2.0
    flag.value = 1
    gpu.finish(stream)
    assert held.tolist() == [2.0] * 8


def test_somebody_elses_memory_is_pinned_once(gpu: Gpu) -> None:
    array = np.arange(1000, dtype=np.float32)
    assert gpu.pin(array)
    assert not gpu.pin(array)
    stream, memory = gpu.make_stream(), gpu.allocate(array.nbytes)
    gpu.copy(stream, memory, address_of(array), array.nbytes)
    assert np.array_equal(gpu.download(memory, 1000, np.float32, stream), array)
    trials().device_unpin(address_of(array))
    assert gpu.pin(array)
    trials().device_unpin(address_of(array))


def test_memory_between_devices_and_fill(gpu: Gpu) -> None:
    other = Gpu(1)
    stream = gpu.make_stream()
    here, there = gpu.allocate(64), other.allocate(64)
    gpu.fill(stream, here, 7, 64)
    gpu.copy(stream, there, here, 64)
    gpu.finish(stream)
    assert other.download(there, 64, np.uint8).tolist() == [7] * 64
    for memory in (here, there):
        trials().device_free(memory)


def test_the_threads_current_device_stays(gpu: Gpu) -> None:
    runtime = ctypes.CDLL(str(build.runtime_path()))
    runtime.cudaSetDevice(2)
    stream = gpu.make_stream()
    gpu.finish(stream)
    gpu.allocate(8)
    current = c_int()
    runtime.cudaGetDevice(ctypes.byref(current))
    runtime.cudaSetDevice(0)
    assert current.value == 2


def test_errors_name_gpu_call_and_reason(gpu: Gpu) -> None:
    where = "GPU 0 (Emulated GPU)"
    why = "out of memory (cudaErrorMemoryAllocation)"
    with refused_there(
        "DeviceFailure", "cuda_failed", gpu=where, call=f"cudaMalloc of {1 << 40} bytes", why=why
    ):
        gpu.allocate(1 << 40)
    memory = gpu.allocate(16)
    with refused_there("DeviceFailure", "cuda_failed", gpu=where, call="cudaMemcpyAsync of 17 bytes"):
        gpu.copy(None, memory, address_of(np.zeros(32, np.uint8)), 17)
    with refused_there("DeviceFailure", "cuda_failed", gpu=where, call="cudaEventRecord"):
        gpu.record(Gpu(1).make_stream())


IN_A_PROCESS = """
import sys
sys.path.insert(0, {emulation!r})
from device_trials import *
"""


def run(program: str, **environment: str) -> str:
    """The output of a program in a new process, as the emulation reads its environment only once."""
    code = IN_A_PROCESS.format(emulation=str(EMULATION)) + program
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", range(4))
def test_a_kernel_that_breaks_the_rules_fails_its_gpu(way: int) -> None:
    program = f"""
gpu = Gpu(0)
stream = gpu.make_stream()
event = gpu.record(stream)
trials().trial_never_meet({way}, stream)
try:
    gpu.finish(stream)
    gpu.finish(stream)
except DeviceError as error:
    print(error)
print(Gpu(1).make_stream() is not None)
"""
    output = run(program)
    assert "unspecified launch failure (cudaErrorLaunchFailure)" in output
    assert "True" in output
    reasons = ["never come", "different operations", "does not name it", "different masks"]
    assert reasons[way] in output


def test_devices_of_the_environment() -> None:
    program = """
gpus = [Gpu(i) for i in range(2)]
print([gpus[0].reaches(gpu.identity) for gpu in reversed(gpus)])
try:
    Gpu(2)
except DeviceError as error:
    print(error)
"""
    visible = {"EMULATED_CUDA_DEVICES": "8", "CUDA_VISIBLE_DEVICES": "5,2"}
    seen = run("print([Gpu(i).identity for i in range(2)])", **visible)
    all_of_them = run("print([Gpu(i).identity for i in (5, 2)])", EMULATED_CUDA_DEVICES="8")
    assert seen == all_of_them
    output = run(program, **visible, EMULATED_CUDA_PEERS="0")
    assert output == "[False, True]\nWrongArgument\ngpu_unknown\ngpu=2\ncount=2\n"


def test_no_gpu_is_a_clear_error() -> None:
    program = """
try:
    Gpu(0)
except DeviceError as error:
    print(error)
"""
    output = run(program, EMULATED_CUDA_DEVICES="0")
    assert output.startswith("WrongArgument\ncuda_does_not_work\nwhy=no CUDA-capable device")


def test_injected_failures() -> None:
    program = """
gpu = Gpu(0)
gpu.allocate(8)
for _ in range(2):
    try:
        gpu.allocate(8)
        print("fine")
    except DeviceError as error:
        print(error)
"""
    *lines, last = run(program, EMULATED_CUDA_FAIL="cudaMalloc:2:719").splitlines()
    assert lines[:2] == ["DeviceFailure", "cuda_failed"] and "call=cudaMalloc of 8 bytes" in lines
    assert lines[-1] == "why=unspecified launch failure (cudaErrorLaunchFailure)" and last == "fine"


def test_memory_beyond_an_end_crashes() -> None:
    program = """
gpu = Gpu(0)
stream = gpu.make_stream()
memory = gpu.allocate(256 * 4)
trials().trial_reverse(memory, ctypes.c_void_p(memory.value + 2000), 256, stream)
gpu.finish(stream)
"""
    with pytest.raises(AssertionError):
        run(program)


def test_a_package_without_cuda_says_so() -> None:
    program = """
import ctypes, build
library = ctypes.CDLL(str(build.trials_path()))
library.device_count.restype = ctypes.c_char_p
count = ctypes.c_int()
print(library.device_is_installed(), library.device_count(ctypes.byref(count)).decode())
"""
    output = run(program)
    assert output.startswith("0 WrongArgument\nbuilt_without_cuda\n") and "HOROVOD_WITH_CUDA=1" in output
