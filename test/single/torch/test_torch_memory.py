"""Changes that a program makes to an operation's memory, and the operation's effect on autograd."""

# private: _incrementing: simulates a torch without this function

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from ranks import SUM, WORLDS, on_ranks, predictable, tensor
from refusals import refused

import horovod.torch as hvd
from horovod import _native
from horovod.common.exceptions import HorovodInternalError, LostRank, TensorChanged
from horovod.torch import errors, storage

TWICE = {"op": hvd.Sum, "prescale_factor": 2.0}
MODIFIED = "modified by an inplace operation"
GROUP_OF_TWO = "'apple', number 1 of"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A job of one rank whose engine starts an operation only when a caller waits."""
    monkeypatch.setenv("HOROVOD_CYCLE_TIME", "100000")
    hvd.init()
    yield
    hvd.shutdown()


IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "allreduce_": lambda q: hvd.allreduce_(q, **TWICE),
    "allreduce_async_": lambda q: hvd.synchronize(hvd.allreduce_async_(q, **TWICE)),
    "grouped_allreduce_": lambda q: hvd.grouped_allreduce_([torch.ones(2), q], **TWICE),
    "grouped_allreduce_async_": lambda q: hvd.synchronize(hvd.grouped_allreduce_async_([q], **TWICE)),
    "in a process set": lambda q: hvd.allreduce_(q, **TWICE, process_set=hvd.global_process_set),
    "compressed": lambda q: hvd.allreduce_(q, compression=hvd.Compression.bit8, **TWICE),
    "cast": lambda q: hvd.allreduce_(q, compression=hvd.Compression.fp16, **TWICE),
    "gathered": lambda q: hvd.allreduce_(q, compression=hvd.Compression.topk(ratio=0.5), **TWICE),
    "transposed": lambda q: hvd.allreduce_(q.t(), **TWICE),
    "broadcast_": lambda q: hvd.broadcast_(q, 0),
    "broadcast_async_": lambda q: hvd.synchronize(hvd.broadcast_async_(q, 0)),
    "broadcast_parameters": lambda q: hvd.broadcast_parameters([("q", q)], 0),
}


class TestAutograd:
    @pytest.mark.parametrize("call", IN_PLACE.values(), ids=IN_PLACE)
    def test_hears_of_every_operation_in_place(self, alone: None, call: Callable[[Any], Any]) -> None:
        """exp() saves its result for backward(), which raises an error as the result has changed."""
        q = torch.full((4, 6), 0.5, requires_grad=True).exp()
        call(q)
        with pytest.raises(RuntimeError, match=MODIFIED):
            q.sum().backward()

    def test_hears_of_it_before_it_is_done_and_again_then(self, unhurried: None) -> None:
        w, x, q = torch.ones(4, requires_grad=True), torch.ones(4), torch.ones(4, requires_grad=True).exp()
        first, second = hvd.allreduce_async_(x, **TWICE), hvd.allreduce_async_(q, **TWICE)
        version = x._version
        with pytest.raises(RuntimeError, match=MODIFIED):
            q.sum().backward()
        y = (w * x).sum()  # the value saved here is not written yet
        hvd.poll(first)
        assert x._version == version, "until synchronize(), only the program's own writes change it"
        hvd.synchronize(first)
        with pytest.raises(RuntimeError, match=MODIFIED):
            y.backward()
        hvd.synchronize(second)

    def test_hears_nothing_of_operations_that_only_read(self, alone: None) -> None:
        q = torch.ones(6, requires_grad=True).exp()
        for call in (hvd.allreduce, hvd.allgather, hvd.reducescatter, hvd.alltoall):
            call(q)
        hvd.broadcast(q, 0)
        hvd.synchronize(hvd.allreduce_async(q))
        q.sum().backward()

    def test_tensors_that_torchs_own_operations_refuse_in_place(self, alone: None) -> None:
        leaf = torch.ones(3, requires_grad=True)
        hvd.allreduce_(leaf, **TWICE)
        hvd.broadcast_(leaf[1:], 0)
        hvd.broadcast_(leaf.data, 0)
        (leaf * 2).sum().backward()
        assert leaf.tolist() == leaf.grad.tolist() == [2.0] * 3
        with torch.inference_mode():
            untracked = torch.ones(3)
            hvd.allreduce_(untracked, **TWICE)
        assert hvd.broadcast_(untracked, 0).tolist() == [2.0] * 3


class TestMemoryInFlight:
    def test_resized_before_the_core_begins(self, unhurried: None) -> None:
        x = torch.ones(1000)
        handle = hvd.grouped_allreduce_async_([torch.ones(3), x], name="pear")
        x.untyped_storage().resize_(0)
        what = re.compile(r"'allreduce\.pear', number 1 of")
        with refused(TensorChanged, tensor="allreduce.pear", cause="tensor_changed", why=what):
            hvd.synchronize(handle)

    @pytest.mark.parametrize(
        "start",
        [
            hvd.allreduce_async, hvd.allgather_async, hvd.alltoall_async, hvd.reducescatter_async,
            lambda x: hvd.broadcast_async(x, 0),
        ],
    )  # fmt: skip
    def test_of_a_tensor_that_is_only_read(self, unhurried: None, start: Callable[[Any], int]) -> None:
        x = torch.ones(8)
        handle = start(x)
        x.resize_(100_000)
        with refused(TensorChanged):
            hvd.synchronize(handle)

    @pytest.mark.parametrize("start", [hvd.allreduce_async_, lambda x: hvd.broadcast_async_(x, 0)])
    def test_replaced(self, unhurried: None, start: Callable[[Any], int]) -> None:
        """The core has written to the tensor's former memory, which was kept; the job continues."""
        x, y = torch.ones(8), torch.ones(8)
        handle = start(x)
        x.set_(torch.zeros(8))
        with refused(errors.memory_replaced, shape=(8,), ranks=(0,)):
            hvd.synchronize(handle)
        assert hvd.allreduce(y, **TWICE).tolist() == [2.0] * 8

    def test_of_a_tensor_that_is_only_read_may_be_replaced(self, unhurried: None) -> None:
        x = torch.ones(8)
        handle = hvd.allreduce_async(x, **TWICE)
        x.data = torch.zeros(8)
        assert hvd.synchronize(handle).tolist() == [2.0] * 8

    @pytest.mark.parametrize("x", [torch.ones(100), torch.ones(10, 10).t(), torch.ones(200)[100:]])
    def test_resized_before(self, alone: None, x: torch.Tensor) -> None:
        x = x.clone(memory_format=torch.preserve_format) if x.storage_offset() == 0 else x
        needed = x.untyped_storage().nbytes()
        for nbytes in (0, needed - 4):
            x.untyped_storage().resize_(nbytes)
            with refused(errors.storage_too_small, tensor="allreduce.noname", bytes=nbytes, needed=needed):
                hvd.allreduce_(x)
        x.untyped_storage().resize_(needed)
        hvd.allreduce_(x.fill_(1.0))

    @pytest.mark.parametrize("shares_memory", WORLDS)
    def test_resized_while_the_core_is_at_it(self, shares_memory: bool) -> None:
        """The witness word is in the result, so the first part written shows a change to the other ranks."""

        def program(rank: int, engine: _native.Engine) -> None:
            x, y = np.ones(2_000_000, np.float32), np.zeros(2_000_000, np.float32)
            word = y.ctypes.data if rank == 1 else 0
            lent = _native.Tensor(x.ctypes.data, y.ctypes.data, list(x.shape), 6, witness=word)
            small = [tensor(np.ones(9, np.float32)), lent]
            if rank == 1:
                about = {"tensor": "apple", "rank": 1, "cause": "tensor_changed"}
                failure = refused(TensorChanged, "operation_failed", why=re.compile(GROUP_OF_TWO), **about)
            else:
                failure = pytest.raises(HorovodInternalError)
            with failure:
                engine.wait(engine.allreduce("apple", small, _native.Reduction(op=SUM)))

        on_ranks(2, program, shares_memory, settings=predictable("scatter"))

    def test_before_the_core_begins_each_rank_hears(self) -> None:
        def program(rank: int, engine: _native.Engine) -> None:
            x, word = np.ones(9, np.float32), ctypes.c_size_t(7)
            lent = _native.Tensor(x.ctypes.data, 0, [9], 6, witness=ctypes.addressof(word))
            word.value = 7 + rank
            with refused(TensorChanged, tensor="apple") if rank else refused(LostRank, ranks=(1,)):
                engine.wait(engine.allgather("apple", [lent]))

        on_ranks(2, program)

    def test_torch_tells_where_it_keeps_the_address(self) -> None:
        shared = torch.ones(2).share_memory_()
        for x in (torch.ones(5), torch.from_numpy(np.ones(4)), torch.ones(9)[3:], shared):
            word = ctypes.c_size_t.from_address(storage.witness_of(x))
            assert word.value == x.untyped_storage().data_ptr()


class TestTensorsWithoutMemory:
    def test_fake_ones(self, alone: None) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.ones(4)
            for call in (hvd.allreduce, hvd.allreduce_async_, hvd.allgather_async, hvd.reducescatter):
                with refused(errors.no_memory, got="FakeTensor"):
                    call(fake)
        for call in (
            lambda x: hvd.broadcast_(x, 0),
            lambda x: hvd.allreduce(x, compression=hvd.Compression.fp16),
        ):
            with refused(errors.no_memory, got="FakeTensor"):
                call(fake)

    def test_those_made_of_others(self, alone: None) -> None:
        from torch.testing._internal.two_tensor import TwoTensor

        with refused(errors.no_memory, got="TwoTensor"):
            hvd.allreduce_(TwoTensor(torch.ones(3), torch.ones(3)))

    def test_those_of_transforms(self, alone: None) -> None:
        def reduced(x: torch.Tensor) -> torch.Tensor:
            return hvd.synchronize(hvd.allreduce_async_(x * 2)).sum()

        for transform in (torch.vmap, torch.func.grad, torch.func.functionalize):
            with refused(errors.transformed):
                transform(reduced)(torch.ones(3, 4) if transform is torch.vmap else torch.ones(3))

    def test_recordings(self, alone: None) -> None:
        from torch.fx.experimental.proxy_tensor import make_fx

        with refused(errors.recorded):
            make_fx(lambda x: hvd.allreduce_async_(x * 2))(torch.ones(3))

    def test_subclasses_that_have_memory_are_served(self, alone: None) -> None:
        class Mine(torch.Tensor):
            pass

        class Watched(torch.Tensor):
            @classmethod
            def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
                return function(*args, **(kwargs or {}))

        for x in (torch.ones(3).as_subclass(Mine), torch.nn.Parameter(torch.ones(3)), torch.ones(0)):
            assert hvd.allreduce_(x, **TWICE).tolist() == [2.0] * x.numel()
        x = torch.Tensor._make_subclass(Watched, torch.ones(3))
        storage.check_memory(x, "x")


def test_an_older_torch_that_increments_one_version_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in torch 2.4: its function takes a tensor, and refuses a list with RuntimeError."""

    def of_one(tensor: torch.Tensor) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise RuntimeError("increment_version expect a Tensor as input")
        seen.append(tensor)

    seen: list[torch.Tensor] = []
    monkeypatch.setattr(torch.autograd.graph, "increment_version", of_one)
    tensors = [torch.zeros(1), torch.ones(1)]
    storage._incrementing()(tensors)
    assert [id(tensor) for tensor in seen] == [id(tensor) for tensor in tensors]
