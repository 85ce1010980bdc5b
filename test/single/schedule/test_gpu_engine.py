"""GPU tensors in the engine: order between streams, fusion, joins, failures, shutdown."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import busy
import numpy as np
import pytest
import ranks
from emulated_gpu import (
    Gate,
    GpuArray,
    Stream,
    array,
    gpu_allreduce,
    gpu_received,
    gpu_source,
    gpu_submit,
    gpu_tensor,
    gpu_values,
    last_error,
    over,
)
from ranks import (
    ADASUM,
    DTYPES,
    MAX,
    MIN,
    PRODUCT,
    add_set,
    allreduce,
    ends_within,
    numbers,
    on_ranks,
    source_only,
    submit,
)
from refusals import expect, refused
from tcp_worlds import TcpJob, tcp_settings

from horovod import _native
from horovod.common.exceptions import (
    DeviceFailure,
    Disagreement,
    HorovodInternalError,
    LostRank,
    WrongArgument,
)

TRANSPORTS = ["nccl", "host"]


def ones(count: int = 8) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.ones(count, np.float32)


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = busy.limit(seconds)
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.002)
    return holds()


class TestOrder:
    """The host never waits: order is between streams."""

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_what_a_stream_was_given_before_comes_before(self, transport: str) -> None:
        def program(rank: int, engine: _native.Engine) -> list[float]:
            x = array(ones(), rank)
            gate = Gate(x, 10.0 * (rank + 1))
            handle = gpu_submit(engine, "x", x)
            assert not ends_within(engine, handle, 0.1)
            gate.open()
            return gpu_values(engine, handle, x).tolist()

        assert on_ranks(2, program, settings=over(transport)) == [[32.0] * 8] * 2

    def test_a_handle_is_done_when_the_work_is_given_to_the_gpu(self) -> None:
        """wait() returns although the tensor is not even ready; poll() is about the result."""

        def program(rank: int, engine: _native.Engine) -> None:
            gpu_allreduce(engine, "first", ones(), rank)  # communicators are made
            x, y = array(ones(), rank), array(ones(), rank)
            gates = [Gate(x, 1.0)]
            first, second = gpu_submit(engine, "x", x), gpu_submit(engine, "y", y)
            result = engine.wait(first)
            assert not engine.poll(second)
            assert last_error() == "cudaSuccess"  # "not ready" would be the next kernel's error
            result.order(x.stream.number)
            gates.append(Gate(x, 1.0))  # after the results
            assert not x.stream.is_idle()
            gates[0].open()
            assert ends_within(engine, second)
            gates[1].open()
            assert gpu_values(engine, second, y).tolist() == [2.0] * 8
            assert x.numpy().tolist() == [5.0] * 8

        on_ranks(2, program, settings=over("nccl"))

    def test_each_tensor_of_a_group_has_its_own_stream(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            xs = [array(ones(), rank) for _ in range(3)]
            gates = [Gate(x, float(i)) for i, x in enumerate(xs)]
            handle = engine.allreduce("group", [gpu_tensor(x) for x in xs], _native.Reduction())
            for gate in gates:
                assert not ends_within(engine, handle, 0.05)
                gate.open()
            result = engine.wait(handle)
            for i, x in enumerate(xs):
                result.order(x.stream.number)
                assert x.numpy().tolist() == [2.0 * (i + 1)] * 8

        on_ranks(2, program)

    def test_results_of_the_core_are_copied_by_a_stream_of_the_caller(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = array(np.full((rank + 1, 3), rank, np.int64), rank)
            for _ in range(5):  # in the same memory
                result = engine.wait(engine.allgather("g", [gpu_source(x)]))
                assert gpu_received(result, x).tolist() == [[0] * 3, [1] * 3, [1] * 3]
                result = engine.wait(engine.alltoall("a", gpu_source(x), [0, rank + 1]))
                assert result.sizes == ([0, 0] if rank == 0 else [1, 2])
                assert gpu_received(result, x).tolist() == [[0] * 3, [1] * 3, [1] * 3][: 3 * rank]
            too_short = {"bytes": result.nbytes, "count": 8, "offset": result.nbytes}
            with refused(WrongArgument, "result_too_short", **too_short):
                result.copy_to(result.nbytes, x.address, 8, x.stream.number)
            with refused(WrongArgument, "result_on_gpu"):
                result.buffer()

        on_ranks(2, program)

    def test_a_result_outlives_its_python_object_until_it_is_copied(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x = array(np.full(1000, rank, np.float32), rank)
            out = GpuArray(np.zeros(2000, np.float32), Stream(rank))
            gate = Gate(out)
            result = engine.wait(engine.allgather("g", [gpu_source(x)]))
            result.copy_to(0, out.address, 8000, out.stream.number)
            del result
            y = array(np.full(1000, -1.0 - rank, np.float32), rank)  # freeing one would wait for the gate
            for i in range(3):  # would take the same memory
                engine.wait(engine.allgather(f"h{i}", [gpu_source(y)])).order(y.stream.number)
                y.stream.synchronize()
            gate.open()
            assert out.numpy().tolist() == [0.0] * 1000 + [1.0] * 1000

        on_ranks(2, program)

    def test_memory_of_many_small_results_is_used_again(self) -> None:
        """Freeing memory would wait for the gate, as it waits for the whole GPU."""

        def program(rank: int, engine: _native.Engine) -> None:
            x, y = array(ones(), rank), array(ones(), rank)

            def gather() -> list[_native.Result]:
                results = [engine.wait(engine.allgather(f"g{i}", [gpu_source(x)])) for i in range(12)]
                for result in results:
                    result.order(x.stream.number)
                x.stream.synchronize()
                return results

            gather()
            gate = Gate(y)
            for _ in range(3):
                gather()
            gate.open()

        on_ranks(2, program, settings=over("nccl"))

    def test_results_in_cpu_memory_need_no_order(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            result = engine.wait(engine.allgather("g", [source_only(ones())]))
            result.order(0)
            with refused(WrongArgument, "result_in_cpu_memory"):
                result.copy_to(0, 0, 0, 0)

        on_ranks(1, program)


class TestTogether:
    def test_a_gpu_on_one_rank_and_none_on_another(self) -> None:
        """The error tells every rank the place of each tensor, and the next operation works."""

        def program(rank: int, engine: _native.Engine) -> None:
            for _ in range(2):
                x, y = array(ones(), rank), ones()
                handle = gpu_submit(engine, "x", x) if rank == 0 else submit(engine, "x", y)
                places = {0: "on a GPU", 1: "in CPU memory"}
                with refused(Disagreement, "disagree", tensor="x", property="place", values=places):
                    engine.wait(handle)
                assert gpu_allreduce(engine, "x", ones(), rank).tolist() == [2.0] * 8
                assert allreduce(engine, "x", ones()).tolist() == [2.0] * 8

        on_ranks(2, program)

    def test_both_kinds_are_not_fused_with_each_other(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            engine.wait(engine.barrier("b"))
            xs, ys = [array(ones(), rank) for _ in range(3)], [ones() for _ in range(3)]
            handles = []
            for i in range(3):
                handles += [gpu_submit(engine, f"x{i}", xs[i]), submit(engine, f"y{i}", ys[i])]
            results = [engine.wait(handle) for handle in handles]
            for i in range(3):
                results[2 * i].order(xs[i].stream.number)
                assert xs[i].numpy().tolist() == ys[i].tolist() == [2.0] * 8
            counters = engine.counters()
            assert counters["gpu_operations"] == 3
            assert counters["operations"] == 7
            assert counters["buckets"] >= 2

        on_ranks(2, program)

    def test_repeated_requests_are_announced_by_number(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            for i in range(6):
                assert gpu_allreduce(engine, "x", ones(), rank).tolist() == [2.0] * 8
                if i == 3:
                    assert allreduce(engine, "x", ones()).tolist() == [2.0] * 8
            assert engine.counters()["cache_hits"] == 4  # not the requests after the change of place

        on_ranks(2, program)

    def test_a_group_in_two_places(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, y, z = array(ones(), 0), array(ones(), 1), ones()
            places = {"first": "on GPU 0", "number": 1, "second": "on GPU 1"}
            with refused(WrongArgument, "group_on_several_devices", tensor="g", **places):
                engine.allreduce("g", [gpu_tensor(x), gpu_tensor(y)], _native.Reduction())
            places = {"first": "in CPU memory", "number": 2, "second": "on GPU 1"}
            with refused(WrongArgument, "group_on_several_devices", tensor="g", **places):
                engine.allgather("g", [source_only(z), source_only(z), gpu_source(y)])

        on_ranks(1, program)

    def test_a_rank_uses_one_gpu(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            gpu_allreduce(engine, "x", ones(), 2)
            with refused(WrongArgument, "gpu_of_other_tensors", tensor="x", ranks=(0,), gpu=1, used=2):
                gpu_submit(engine, "x", array(ones(), 1))
            assert gpu_allreduce(engine, "x", ones(), 2).tolist() == [1.0] * 8

        on_ranks(1, program)

    def test_a_gpu_that_is_not_there(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            wrong = _native.Tensor(0, 0, [0], 6, device=77)
            with refused(WrongArgument, "gpu_unknown", gpu=77, count=8):
                engine.allreduce("x", [wrong], _native.Reduction())
            with refused(WrongArgument, "device_wrong", value=-2):
                _native.Tensor(0, 0, [0], 6, device=-2)
            assert gpu_allreduce(engine, "x", ones(), 1).tolist() == [1.0] * 8  # no GPU was fixed before

        on_ranks(1, program)

    def test_every_operation(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, out = array(np.arange(6, dtype=np.float32), rank), array(np.zeros(3, np.float32), rank)
            handle = engine.reducescatter("r", [gpu_tensor(x, out)], _native.Reduction())
            assert gpu_values(engine, handle, out).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]][rank]
            y = array(np.full(4, rank, np.int16), rank)
            into = array(np.full(4, 9, np.int16), rank)
            handle = engine.broadcast("b", gpu_tensor(y, into), 1)
            assert gpu_values(engine, handle, into).tolist() == [1] * 4
            assert gpu_values(engine, gpu_submit(engine, "s", y), y).tolist() == [1] * 4
            assert gpu_allreduce(engine, "a", ones(), rank, op=ADASUM).tolist() == [1.0] * 8
            empty = array(np.zeros((0, 3), np.float32), rank)
            assert gpu_values(engine, gpu_submit(engine, "e", empty), empty).shape == (0, 3)

        for transport in TRANSPORTS:
            on_ranks(2, program, settings=over(transport))


class TestSets:
    def test_process_sets_share_a_rank_and_its_gpu(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            low, high = add_set(engine, 0, 1), add_set(engine, 1, 2)
            x = array(ones(), rank)
            for step in range(3):
                if rank < 2:
                    assert gpu_allreduce(engine, f"l{step}", ones(), rank, low).tolist() == [2.0] * 8
                if rank > 0:
                    assert gpu_allreduce(engine, f"h{step}", ones(), rank, high).tolist() == [2.0] * 8
                assert gpu_allreduce(engine, "all", ones(), rank).tolist() == [3.0] * 8
            gate = Gate(x, 1.0)
            pending = gpu_submit(engine, "x", x, low) if rank < 2 else 0
            if pending:
                result = engine.wait(pending)
            gate.open()
            engine.wait(engine.remove_process_set(low))  # once operations in flight in it are done
            if pending:
                result.order(x.stream.number)
                assert x.numpy().tolist() == [4.0] * 8
            assert gpu_allreduce(engine, "all", ones(), rank).tolist() == [3.0] * 8

        on_ranks(3, program)

    @pytest.mark.parametrize("transport", TRANSPORTS)
    def test_a_rank_that_has_joined_changes_nothing(self, transport: str) -> None:
        """Rank 1 has never used a GPU, and takes part on the GPU of its local rank."""

        def program(rank: int, engine: _native.Engine) -> None:
            bit8 = _native.get_codec("bit8")
            if rank == 0:
                for step in range(2):
                    assert gpu_allreduce(engine, "x", ones(500), 0).tolist() == [1.0] * 500
                    assert gpu_allreduce(engine, f"c{step}", ones(500), 0, codec=bit8).tolist() == [1.0] * 500
                    assert allreduce(engine, "y", ones()).tolist() == [1.0] * 8
                for op, (name, (_, dtype)) in itertools.product((MIN, MAX, PRODUCT), DTYPES.items()):
                    x = numbers(0, 301, dtype)
                    x[::3] = 0 if name in ("bool", "uint8") else -3
                    assert gpu_allreduce(engine, f"{op}.{name}", x, 0, op=op).tolist() == x.tolist()
            assert engine.wait(engine.join()).sizes == [0]
            assert gpu_allreduce(engine, "x", ones(), rank).tolist() == [2.0] * 8
            with refused(WrongArgument, "gpu_of_other_tensors", ranks=(rank,), gpu=3, used=rank):
                gpu_submit(engine, "z", array(ones(), 3))

        on_ranks(2, program, settings=over(transport))

    def test_a_rank_that_has_joined_and_has_no_gpu(self) -> None:
        """Its engine finds this outside of a call, so it is not a wrong argument."""
        tcp = TcpJob(2)
        secret, endpoint = tcp.secret.hex(), tcp.endpoints[0][0]
        command = [sys.executable, "-c", JOINS_WITHOUT_GPU, secret, endpoint]
        environment = {**os.environ, "EMULATED_CUDA_DEVICES": "0"}
        with subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            tcp.endpoints[1] = [other.stdout.readline().strip()]
            engine = _native.Engine(tcp.open_one(0), tcp_settings(deterministic=True))
            with pytest.raises(LostRank) as caught:
                gpu_allreduce(engine, "x", ones(), 0)
            engine.shutdown()
            said = other.stdout.read().split()
        assert caught.value.ranks == (1,)
        assert said == ["HorovodInternalError", "operation_failed", "cuda_does_not_work", "x", "(1,)"]


JOINS_WITHOUT_GPU = f"""
import sys
sys.path.insert(0, {str(Path(ranks.__file__).parent)!r})
import emulated_gpu
from tcp_worlds import TcpJob, tcp_settings
from horovod import _native

tcp = TcpJob(2)
print(tcp.endpoints[1][0], flush=True)
tcp.secret, tcp.endpoints[0] = bytes.fromhex(sys.argv[1]), [sys.argv[2]]
engine = _native.Engine(tcp.open_one(1), tcp_settings(deterministic=True))
try:
    engine.wait(engine.join())
except Exception as error:
    print(type(error).__name__, error.code, error.facts["cause"], error.tensor, error.ranks)
engine.shutdown()
"""


class TestEnd:
    def test_what_is_in_flight_is_finished_before_the_end(self) -> None:
        def program(rank: int, engine: _native.Engine) -> GpuArray:
            x = array(ones(), rank)
            gate = Gate(x)
            engine.wait(gpu_submit(engine, "x", x)).order(x.stream.number)
            gate.open()
            return x  # shutdown() comes next

        for x in on_ranks(2, program, settings=over("nccl")):
            assert x.numpy().tolist() == [2.0] * 8

    def test_a_failure_on_the_gpu_ends_all_ranks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The engine notices it between submissions, without a call. Streams continue."""
        words = tmp_path / "async"
        monkeypatch.setenv("EMULATED_NCCL_ASYNC_FILE", str(words))

        def program(rank: int, engine: _native.Engine) -> HorovodInternalError:
            gpu_allreduce(engine, "x", ones(), rank)
            x = array(ones(), rank)
            # Freeing results waits for the GPU, so it must follow the abort of the hanging operation.
            assert gpu_received(engine.wait(engine.allgather("g", [gpu_source(x)])), x).tolist() == [1.0] * 16
            gate = Gate(x)
            if rank == 0:  # without rank 1's part this stays in progress
                engine.wait(gpu_submit(engine, "late", x)).order(x.stream.number)
                words.write_text("0:0:6")
                gate.open()
            else:
                engine.wait(gpu_submit(engine, "late", x))
            assert eventually(lambda: engine.has_failed)
            gate.open()
            assert eventually(x.stream.is_idle), "a stream waits for ever"
            with pytest.raises(HorovodInternalError) as raised:
                gpu_submit(engine, "y", x)
            return raised.value

        first, _ = on_ranks(2, program, settings=over("nccl"))
        about = {"tensor": "late", "operation": "'late', 32 bytes", "rank": 0, "cause": "gpu_failed"}
        expect(first, DeviceFailure, "operation_failed", remedy="The job cannot go on", **about)

    def test_what_is_pending_fails_when_a_rank_is_lost(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            gpu_allreduce(engine, "x", ones(), rank)
            x = array(ones(), rank)
            if rank == 0:
                with pytest.raises(HorovodInternalError):  # otherwise it is lost before this
                    engine.wait(gpu_submit(engine, "alone", x))

        on_ranks(2, program, settings=over("nccl"))

    def test_engines_without_a_thread(self) -> None:
        [world] = _native.local_worlds(1)
        engine = _native.Engine(world, over("auto"), start_thread=False)
        x = array(ones(), 0)
        gate = Gate(x, 1.0)
        handle = gpu_submit(engine, "x", x)
        assert engine.step(5.0)
        assert not engine.poll(handle)
        gate.open()
        assert ends_within(engine, handle)
        engine.shutdown()
