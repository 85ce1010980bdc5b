"""Ranks that promised to start the same operations in one order: who breaks it is told, and what was held."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from ranks import ends_within, submit

from horovod import _native
from horovod.common.exceptions import HorovodInternalError

Engines = list[_native.Engine]


def engines_of(size: int, in_order: bool, cache_capacity: int = 1 << 40) -> Engines:
    settings = _native.Settings()
    settings.cache_capacity = cache_capacity
    worlds = _native.local_worlds(size)
    return [_native.Engine(w, settings, in_order=in_order) for w in worlds]


def shut_down(engines: Engines) -> None:
    """Each waits for the others."""
    threads = [threading.Thread(target=engine.shutdown) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(params=[2, 3])
def engines(request: pytest.FixtureRequest) -> Iterator[Engines]:
    made = engines_of(request.param, True)
    yield made
    shut_down(made)


def outcomes(engines: Engines, by_rank: Sequence[Sequence[str]]) -> list[list[str]]:
    """Of the sums that ranks ask for in their orders, each by itself: "" or what went wrong."""
    values = [[np.full(3, rank + 1.0, np.float32) for _ in names] for rank, names in enumerate(by_rank)]
    handles: list[list[int]] = [[] for _ in engines]
    for place in range(max(map(len, by_rank))):
        for rank, names in enumerate(by_rank):
            if place < len(names):
                handles[rank].append(submit(engines[rank], names[place], values[rank][place]))
    total = sum(range(1, len(engines) + 1))
    told = []
    for engine, own, arrays in zip(engines, handles, values, strict=True):
        told.append([""] * len(own))
        for i, (handle, array) in enumerate(zip(own, arrays, strict=True)):
            assert ends_within(engine, handle)
            try:
                engine.wait(handle)
                assert np.all(array == total)
            except HorovodInternalError as error:
                told[-1][i] = str(error)
    return told


def test_one_order_is_right(engines: Engines) -> None:
    """Also of names that ranks know by numbers, between others that they do not."""
    for names in (["a", "b"], ["a", "c", "b", "d"], ["d", "e", "a"]):
        assert outcomes(engines, [names] * len(engines)) == [[""] * len(names)] * len(engines)


@pytest.mark.parametrize("before", [[], ["a", "b", "c"], ["b"]])
def test_another_order_is_told_to_all(engines: Engines, before: list[str]) -> None:
    """Whether names are known by numbers or not; and the job goes on."""
    others = len(engines) - 1
    outcomes(engines, [before] * len(engines))
    told = outcomes(engines, [*[["a", "c"]] * others, ["b", "c"]])
    assert [own[1] for own in told] == [""] * len(engines)
    for own in told:
        assert "rank 0 'a'" in own[0] and f"rank {others} 'b'" in own[0]
        assert own[0].endswith("in one order")
    assert outcomes(engines, [["a"]] * len(engines)) == [[""]] * len(engines)


def test_swapped_operations_are_both_refused(engines: Engines) -> None:
    told = outcomes(engines, [*[["a", "b"]] * (len(engines) - 1), ["b", "a"]])
    assert all("in the same order" in error for own in told for error in own), told


def test_without_the_promise_any_order_does() -> None:
    engines = engines_of(2, False)
    assert outcomes(engines, [["a", "b"], ["b", "a"]]) == [["", ""]] * 2
    shut_down(engines)


def test_what_follows_comes_when_it_does(engines: Engines) -> None:
    """A later request of an operation that takes several has no place in the order."""
    arrays = [np.ones(3, np.float32) for _ in range(3 * len(engines))]

    def ask(rank: int, name: str, follows: bool = False) -> int:
        array = arrays.pop()
        tensor = _native.Tensor(array.ctypes.data, array.ctypes.data, [3], 6)
        kept.append(array)
        return engines[rank].allreduce(name, [tensor], _native.Reduction(), 0, follows)

    kept: list[np.ndarray] = []
    handles = []
    for rank in range(len(engines)):
        asked = [("a", False), ("a.round1", True), ("b", False)]
        order = asked if rank == 0 else [asked[0], asked[2], asked[1]]
        handles += [(rank, ask(rank, *each)) for each in order]
    for rank, handle in handles:
        assert ends_within(engines[rank], handle)
        engines[rank].wait(handle)


def test_what_is_held_is_announced_together() -> None:
    engines = engines_of(2, True)
    arrays = [[np.ones(3, np.float32) for _ in range(4)] for _ in engines]
    for engine in engines:
        engine.hold()
        engine.hold()
    handles = [
        [submit(engine, f"x{i}", array) for i, array in enumerate(own)]
        for engine, own in zip(engines, arrays, strict=True)
    ]
    for engine in engines:
        engine.let_go()
    time.sleep(0.05)  # of a cycle of 0.001
    assert not any(e.poll(h) for e, own in zip(engines, handles, strict=True) for h in own)
    for engine in engines:
        engine.let_go()
    assert all(ends_within(e, h) for e, own in zip(engines, handles, strict=True) for h in own)
    assert [engine.counters()["announcements"] for engine in engines] == [1, 1]
    assert [engine.counters()["buckets"] for engine in engines] == [1, 1]
    shut_down(engines)
