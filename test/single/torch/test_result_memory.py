"""Memory of results is reused once nothing refers to it, never before, and the amount kept is limited."""

from __future__ import annotations

import gc
import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refused
from thread_ranks import run_ranks

import horovod.torch as hvd
from horovod import _native
from horovod.common import jobs
from horovod.common.exceptions import TensorChanged

MEBI = 1 << 20
MOST_IDLE = 256 * MEBI
COUNT = MEBI // 4  # elements of float32: 1 MiB, the least that is used again


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Limit torch to one thread per rank: ranks that are threads would wait for more."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def engine() -> _native.Engine:
    member = jobs.current().member
    assert member is not None
    return member.engine


def full(value: float, count: int = COUNT) -> torch.Tensor:
    return torch.full((count,), value)


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "allreduce": lambda x: hvd.allreduce(x, op=hvd.Sum),
    "allreduce_async": lambda x: hvd.synchronize(hvd.allreduce_async(x, op=hvd.Sum)),
    "of a group": lambda x: hvd.grouped_allreduce([torch.ones(3), x], op=hvd.Sum)[1],
    "allgather": lambda x: hvd.allgather(x),
    "of a group's allgather": lambda x: hvd.grouped_allgather([torch.ones(3), x])[1],
    "alltoall": lambda x: hvd.alltoall(x),
    "reducescatter": lambda x: hvd.reducescatter(x, op=hvd.Sum),
    "broadcast": lambda x: hvd.broadcast(x, 0),
}


class Cycle:
    """Refers to itself, so that only the garbage collector frees its content."""

    def __init__(self, held: torch.Tensor) -> None:
        self.held, self.own = held, self


def in_a_thread(y: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Give the tensor to a thread; the returned function gives the values that the thread sees."""
    wanted, given, kept, seen = threading.Event(), threading.Event(), [y], []

    def keep(own: torch.Tensor) -> None:
        given.set()
        wanted.wait()
        seen.append(own.clone())

    thread = threading.Thread(target=keep, args=(kept.pop(),))
    thread.start()
    given.wait()
    del y

    def values() -> torch.Tensor:
        wanted.set()
        thread.join()
        return seen[0]

    return values


def saved_by_autograd(y: torch.Tensor) -> Callable[[], torch.Tensor]:
    w = torch.ones(y.shape, requires_grad=True)
    total = (w * y).sum()
    del y

    def gradient() -> torch.Tensor:
        total.backward()
        assert w.grad is not None
        return w.grad

    return gradient


# References to a result that a script may hold, and how to read their values.
HOLDERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda y: y,
    "view": lambda y: y[7:],
    "strided": lambda y: y.view(2, -1).t()[3:],
    "detached": lambda y: y.detach(),
    "data": lambda y: y.data,
    "bytes": lambda y: y.view(torch.int32),
    "parameter": lambda y: torch.nn.Parameter(y),
    "assigned": lambda y: setattr(into := torch.empty(0), "data", y) or into,
    "numpy": lambda y: y.numpy(),
    "slice of numpy": lambda y: y.numpy()[5:],
    "memoryview": lambda y: memoryview(y.numpy()),
    "through numpy": lambda y: torch.from_numpy(y.numpy()),
    "through DLPack": lambda y: np.from_dlpack(y),
    "storage": lambda y: y.untyped_storage(),
    "set_": lambda y: torch.empty(0).set_(y.untyped_storage(), 3, (9,)),
    "cycle": Cycle,
    "thread": in_a_thread,
    "autograd": saved_by_autograd,
}


def values_of(held: Any) -> torch.Tensor:
    if callable(held) and not isinstance(held, torch.Tensor):
        return held()
    if isinstance(held, Cycle):
        return held.held
    if isinstance(held, torch.UntypedStorage):
        return torch.empty(0).set_(held)
    tensor = held.detach() if isinstance(held, torch.Tensor) else torch.from_numpy(np.asarray(held))
    return tensor.view(torch.float32) if tensor.dtype == torch.int32 else tensor


class TestWhatIsHeld:
    @pytest.mark.parametrize("call", ["allreduce", "allgather"])
    def test_never_changes_and_is_given_back_then(self, alone: None, call: str) -> None:
        held = {name: hold(CALLS[call](full(5.0))) for name, hold in HOLDERS.items()}
        assert engine().idle_bytes == 0
        for _ in range(3):
            assert bool((CALLS[call](full(-1.0)) == -1.0).all())
        for name, each in held.items():
            seen = values_of(each)
            assert seen.numel() > 0 and bool((seen == 5.0).all()), name
        del seen, each, held
        gc.collect()
        assert engine().idle_bytes == (len(HOLDERS) + 1) * COUNT * 4

    @pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
    def test_of_every_operation(self, alone: None, call: Callable[[torch.Tensor], torch.Tensor]) -> None:
        first, second = call(full(1.0)), call(full(2.0))
        assert bool((first == 1.0).all()) and bool((second == 2.0).all())
        addresses = {y.untyped_storage().data_ptr() for y in (first, second)}
        assert len(addresses) == 2
        del first, second
        third = call(full(3.0))
        assert third.untyped_storage().data_ptr() in addresses and bool((third == 3.0).all())
        assert third.is_contiguous() and third.data_ptr() % 16 == 0 and third._base is None

    def test_in_shared_memory_and_in_another_process(self, alone: None) -> None:
        shared, sent = CALLS["allreduce"](full(1.0)), CALLS["allreduce"](full(2.0))
        shared.share_memory_()
        context = torch.multiprocessing.get_context("fork")
        ready, wanted, told = context.SimpleQueue(), context.Event(), context.SimpleQueue()

        def child() -> None:
            received = ready.get()
            wanted.wait(60)
            # NumPy, as a forked child lacks torch's threads.
            told.put(set(received.numpy().tolist()) | set(shared.numpy().tolist()))

        process = context.Process(target=child)
        process.start()
        ready.put(sent)
        del sent
        again = [CALLS["allreduce"](full(-1.0)) for _ in range(3)]
        assert bool((shared == 1.0).all()) and len(again) == 3
        wanted.set()
        assert told.get() == {1.0, 2.0}
        process.join(60)
        assert process.exitcode == 0

    def test_after_the_job_has_ended(self) -> None:
        hvd.init()
        before = [call(full(6.0)) for call in CALLS.values()]
        hvd.shutdown()
        hvd.init()
        after = [call(full(7.0)) for call in CALLS.values()]
        assert all(bool((y == 6.0).all()) for y in before)
        del before  # of an engine that is gone
        assert engine().idle_bytes == 0 and all(bool((y == 7.0).all()) for y in after)
        hvd.shutdown()

    def test_by_ranks_and_threads(self) -> None:
        """Each rank keeps some results and drops others, of different sizes, and checks all that it keeps."""

        def work() -> None:
            rank, choose = hvd.rank(), random.Random(7)
            held: list[tuple[torch.Tensor, float]] = []
            for number in range(25):
                count = choose.choice([100, COUNT, COUNT + 9])
                y = hvd.allreduce(full(float(number + rank), count), op=hvd.Sum, name=f"{number}")
                held.append((y, 2.0 * number + 1.0))
                z = hvd.allgather(full(float(-number), count), name=f"{number}")
                held.append((z[count:], float(-number)))
                choose.shuffle(held)
                del held[5:], y, z
                assert all(bool((each == value).all()) for each, value in held)

        run_ranks(2, work)


class TestHowMuchIsKept:
    def test_many_results_of_many_sizes(self, alone: None) -> None:
        """Memory beyond the limit is freed at once, and so is a block larger than the limit."""
        held = [engine().memory((8 + number % 5) * MEBI) for number in range(40)]
        assert engine().idle_bytes == 0
        del held
        assert MOST_IDLE - 12 * MEBI <= engine().idle_bytes <= MOST_IDLE
        memory = engine().memory(MOST_IDLE + 1)
        del memory
        assert engine().idle_bytes == 0

    def test_a_thousand_results_one_after_the_other(self, alone: None) -> None:
        choose = random.Random(3)
        for _ in range(1000):
            memory = engine().memory(choose.randrange(MEBI, 64 * MEBI))
            assert engine().idle_bytes <= MOST_IDLE
        del memory
        assert engine().idle_bytes > MOST_IDLE / 2

    def test_large_memory_is_not_taken_for_small_results(self, alone: None) -> None:
        memory = engine().memory(8 * MEBI)
        del memory
        small = engine().memory(6 * MEBI)
        assert engine().idle_bytes == 8 * MEBI
        alike = engine().memory(7 * MEBI)
        assert engine().idle_bytes == 0
        del small, alike

    @pytest.mark.parametrize(("idle", "is_taken"), [(4, True), (5, True), (5 + 1 / MEBI, False)])
    def test_memory_may_be_larger_by_a_quarter(self, alone: None, idle: float, is_taken: bool) -> None:
        memory = engine().memory(round(idle * MEBI))
        del memory
        memory = engine().memory(4 * MEBI)
        assert (engine().idle_bytes == 0) == is_taken
        del memory

    @pytest.mark.parametrize("sizes", [*itertools.permutations((15, 16, 17))])
    def test_of_what_is_large_enough_the_smallest_is_taken(self, alone: None, sizes: tuple[int, ...]) -> None:
        held = [engine().memory(size * MEBI) for size in sizes]
        del held
        memory = engine().memory(15 * MEBI + 1)
        assert engine().idle_bytes == (15 + 17) * MEBI
        smaller = engine().memory(15 * MEBI)
        assert engine().idle_bytes == 17 * MEBI
        del memory, smaller

    def test_just_as_much_is_kept_as_there_may_be(self, alone: None) -> None:
        held = [engine().memory(MOST_IDLE // 2) for _ in range(2)]
        del held
        assert engine().idle_bytes == MOST_IDLE
        memory = engine().memory(MEBI)
        del memory
        assert engine().idle_bytes == MOST_IDLE // 2 + MEBI, "what was idle for longest is freed"

    def test_small_results_are_torchs_own(self, alone: None) -> None:
        assert engine().memory(MEBI - 1) is None
        y = hvd.allreduce(torch.ones(10))
        y.resize_(10_000)
        assert engine().idle_bytes == 0

    def test_of_an_operation_that_fails(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOROVOD_CYCLE_TIME", "100000")
        hvd.init()
        x = full(1.0)
        handle = hvd.allreduce_async(x, op=hvd.Sum)
        x.untyped_storage().resize_(0)
        with refused(TensorChanged, tensor="allreduce.noname.0"):
            hvd.synchronize(handle)
        gc.collect()
        assert engine().idle_bytes == COUNT * 4
        hvd.shutdown()


class TestResultsAreTensorsLikeOthers:
    @pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.bfloat16, torch.float64, torch.int64])
    def test_of_every_dtype_and_shape(self, alone: None, dtype: torch.dtype) -> None:
        x = torch.ones(4, 5, 60_000, dtype=dtype)
        y = hvd.allreduce(x, op=hvd.Max)
        assert torch.equal(x, y) and y.untyped_storage().nbytes() == x.nbytes and y.data_ptr() % 64 == 0

    def test_gradients_and_in_place_changes(self, alone: None) -> None:
        for name in CALLS.keys() - {"allreduce_async"}:
            x, call = full(3.0).requires_grad_(), CALLS[name]
            y = call(x)
            assert y.grad_fn is not None
            y.mul_(2.0)
            y.sum().backward()
            assert x.grad is not None and bool((x.grad == 2.0).all())

    def test_of_inference_mode_and_of_subclasses(self, alone: None) -> None:
        class Mine(torch.Tensor):
            pass

        with torch.inference_mode():
            assert hvd.allreduce(full(2.0)).is_inference()
        assert type(hvd.allreduce(full(2.0).as_subclass(Mine))) is Mine

    def test_what_can_be_resized(self, alone: None) -> None:
        """The storage has a fixed size, as with torch.from_numpy; any size that fits into it works."""
        y = hvd.allreduce(full(1.0))
        y.resize_(10)
        y.resize_(COUNT)
        torch.add(full(1.0), 1.0, out=y)
        with pytest.raises(RuntimeError, match="not resizable"):
            y.resize_(COUNT + 1)
        y.clone().resize_(2 * COUNT)

    def test_a_forked_child_lets_go_of_them(self, alone: None) -> None:
        y = hvd.allreduce(full(1.0))
        child = os.fork()
        if child == 0:
            del y
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert bool((y == 1.0).all())
