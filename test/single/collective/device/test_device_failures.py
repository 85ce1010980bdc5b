"""A failure between GPUs raises an error that names the tensors on every rank, and no rank hangs."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path

import busy
import numpy as np
import pytest
from emulated_gpu import Gate, GpuArray, Stream, array, gpu_allreduce, gpu_submit, gpu_tensor, over
from ranks import numbers, on_ranks
from refusals import expect, refused

from horovod import _native
from horovod.common.exceptions import DeviceFailure, HorovodInternalError, LostRank


def repeated(rank: int, engine: _native.Engine, times: int = 400) -> HorovodInternalError | None:
    """The error that ends a loop of allreduces."""
    reduction = _native.Reduction(codec=_native.codec_named("bit8/128"))
    x = array(numbers(rank, 5000, np.float32), rank)
    began = time.monotonic()
    try:
        for _ in range(times):
            result = engine.wait(engine.allreduce("x", [gpu_tensor(x)], reduction))
            result.order(x.stream.number)
            x.stream.synchronize()
    except HorovodInternalError as error:
        assert time.monotonic() - began < busy.patience(50)
        return error
    return None


@pytest.mark.parametrize("size", [2, 3])
def test_an_asynchronous_error_ends_all_ranks(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_NCCL_ASYNC", "1:7:6")
    errors = on_ranks(size, repeated, settings=over("nccl", "scatter"))
    assert all(errors), errors
    assert any(isinstance(error, DeviceFailure) and "nccl" in str(error).lower() for error in errors)


def test_an_error_at_any_time_ends_all_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = tmp_path / "async"
    monkeypatch.setenv("EMULATED_NCCL_ASYNC_FILE", str(words))

    def program(rank: int, engine: _native.Engine) -> HorovodInternalError | None:
        if rank == 0:
            threading.Timer(0.3, lambda: words.write_text("0:0:2")).start()
        return repeated(rank, engine, 100_000)

    errors = on_ranks(2, program, settings=over("nccl", "scatter"))
    assert all(errors), errors


def test_ranks_that_share_a_gpu_are_told_so() -> None:
    def program(rank: int, engine: _native.Engine) -> None:
        x = array(np.ones(10, np.float32), 0 if rank < 2 else 1)
        why = re.compile("rank 0 and rank 1 share a GPU, GPU-")
        with refused(HorovodInternalError, "operation_failed", cause="nccl_cannot_be", why=why):
            engine.wait(engine.allreduce("x", [gpu_tensor(x)], _native.Reduction()))

    on_ranks(3, program, settings=over("nccl", "scatter"))


def test_ranks_that_share_a_gpu_go_by_the_host_unless_told_otherwise() -> None:
    def program(rank: int, engine: _native.Engine) -> float:
        x = array(np.ones(10, np.float32), 0)
        engine.wait(engine.allreduce("x", [gpu_tensor(x)], _native.Reduction())).order(x.stream.number)
        return float(x.numpy().sum())

    assert on_ranks(2, program, settings=over("auto", "scatter")) == [20.0, 20.0]


def test_a_communicator_that_cannot_be_is_an_error_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMULATED_NCCL_FAIL", "ncclGetUniqueId:1:3")
    errors = on_ranks(3, lambda rank, engine: repeated(rank, engine, 1), settings=over("nccl", "scatter"))
    assert all(errors), errors
    joining = [error for error in errors if error.facts["cause"] == "nccl_cannot_join"]
    assert joining and all(isinstance(error, DeviceFailure) and error.ranks == (0,) for error in joining)


def test_a_communicator_that_one_rank_cannot_make_is_an_error_everywhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others learn it from that rank, as NCCL continues to wait, or from a rank that knows already.
    Their GPUs work, and the ranks that they name lead to the failed rank.
    """
    monkeypatch.setenv("EMULATED_NCCL_FAIL", "ncclCommInitRankConfig:1:3")  # of the first rank to fail
    start = time.monotonic()
    errors = on_ranks(3, lambda rank, engine: repeated(rank, engine, 1), settings=over("nccl", "scatter"))
    [failed] = [rank for rank, error in enumerate(errors) if isinstance(error, DeviceFailure)]
    for rank, error in enumerate(errors):
        assert error is not None
        expect(error, DeviceFailure if rank == failed else LostRank, ranks=error.ranks, tensor="x")
        assert error.facts["cause"] == "nccl_cannot_join"
        named, seen = rank, set[int]()
        while named != failed:
            assert named not in seen, errors
            seen.add(named)
            (named,) = errors[named].ranks
    assert errors[failed].ranks == (failed,)
    assert "ncclCommInitRankConfig" in str(errors[failed])
    assert time.monotonic() - start < 60, "that is NCCL's patience, and not ours"


def test_a_rank_that_gives_up_before_its_first_transfer(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL reports no error: a call is in progress until the peer has made its call."""
    monkeypatch.setenv("EMULATED_NCCL_CONNECTS_LATE", "1")
    monkeypatch.setenv("EMULATED_NCCL_FAIL", "ncclBroadcast:1:3")  # of the first rank to fail

    def program(rank: int, engine: _native.Engine) -> HorovodInternalError:
        x = array(np.ones(10, np.float32), rank)
        with pytest.raises(HorovodInternalError) as raised:
            engine.wait(engine.broadcast("x", gpu_tensor(x), 0))
        return raised.value

    errors = on_ranks(2, program, settings=over("nccl", "scatter"))
    [failed] = [rank for rank, error in enumerate(errors) if isinstance(error, DeviceFailure)]
    expect(errors[failed], DeviceFailure, cause="nccl_failed", why=re.compile("^ncclBroadcast"))
    expect(errors[1 - failed], LostRank, ranks=(failed,))


def test_a_host_far_ahead_of_its_gpu_hears_of_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More operations than are in flight at once, none of which can run: rank 1's tensors are never
    ready.
    """
    words = tmp_path / "async"
    monkeypatch.setenv("EMULATED_NCCL_ASYNC_FILE", str(words))
    together = threading.Barrier(2)
    settings = over("nccl", "scatter")
    settings.fusion_threshold = 0

    def program(rank: int, engine: _native.Engine) -> None:
        codec = _native.get_codec("bit8")
        gpu_allreduce(engine, "warm", np.ones(8, np.float32), rank, codec=codec)
        stream = Stream(rank)
        xs = [GpuArray(np.ones(8, np.float32), stream) for _ in range(50)]
        gate = Gate(xs[0])
        handles = [gpu_submit(engine, f"x{i}", x, codec=codec) for i, x in enumerate(xs)]
        if rank == 0:
            gate.open()
        try:
            engine.wait(handles[0])
            given = 0
            while (now := engine.counters()["gpu_operations"]) != given:
                given = now
                time.sleep(1.0)
            together.wait(20)
            if rank == 1:
                words.write_text("1:0:6")
            deadline = busy.limit(20)
            while not engine.has_failed and time.monotonic() < deadline:
                time.sleep(0.01)
            assert engine.has_failed
        finally:
            gate.open()
        with pytest.raises(HorovodInternalError):
            engine.wait(handles[-1])

    on_ranks(2, program, settings=settings)
