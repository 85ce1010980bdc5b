"""Ranks that promised to start the same operations in one order.

They begin known operations before the other ranks request them; a rank that breaks the order gets an error.
"""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import busy
import numpy as np
import pytest
from ranks import ends_within, submit
from refusals import expect, refused
from tcp_worlds import tcp_settings, tcp_worlds

from horovod import _native
from horovod.common.exceptions import Disagreement, HorovodInternalError, Stalled

Engines = list[_native.Engine]


def engines_of(size: int, in_order: bool = True, over: str = "window", **settings: object) -> Engines:
    """Engines of ranks 0..size-1. `over`: "window" and "exchange" are of threads, "tcp" is of hosts."""
    chosen = tcp_settings(**{"cache_capacity": 1 << 40, **settings})
    made = tcp_worlds(size) if over == "tcp" else _native.local_worlds(size, over == "window")
    return [_native.Engine(world, chosen, in_order=in_order) for world in made]


def shut_down(engines: Engines) -> None:
    """Shut down all engines at once, as each waits for the others."""
    together(engines, _native.Engine.shutdown)


def together(engines: Engines, act: Callable[[_native.Engine], object]) -> None:
    threads = [threading.Thread(target=act, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(params=[2, 3])
def engines(request: pytest.FixtureRequest) -> Iterator[Engines]:
    made = engines_of(request.param)
    yield made
    shut_down(made)


@pytest.fixture(params=[(size, over) for size in (2, 3) for over in ("window", "exchange", "tcp")])
def any_engines(request: pytest.FixtureRequest) -> Iterator[Engines]:
    made = engines_of(request.param[0], over=request.param[1])
    yield made
    shut_down(made)


def outcomes(engines: Engines, by_rank: Sequence[Sequence[str]]) -> list[list[HorovodInternalError | None]]:
    """Request sums in each rank's order, each alone; return the errors, or None."""
    values = [[np.full(3, rank + 1.0, np.float32) for _ in names] for rank, names in enumerate(by_rank)]
    handles: list[list[int]] = [[] for _ in engines]
    for place in range(max(map(len, by_rank))):
        for rank, names in enumerate(by_rank):
            if place < len(names):
                handles[rank].append(submit(engines[rank], names[place], values[rank][place]))
    total = sum(range(1, len(engines) + 1))
    told: list[list[HorovodInternalError | None]] = []
    for engine, own, arrays in zip(engines, handles, values, strict=True):
        told.append([None] * len(own))
        for i, (handle, array) in enumerate(zip(own, arrays, strict=True)):
            assert ends_within(engine, handle)
            try:
                engine.wait(handle)
                assert np.all(array == total)
            except HorovodInternalError as error:
                told[-1][i] = error
    return told


def test_one_order_is_right(engines: Engines) -> None:
    """Also for names known by numbers, between new names."""
    for names in (["a", "b"], ["a", "c", "b", "d"], ["d", "e", "a"]):
        assert outcomes(engines, [names] * len(engines)) == [[None] * len(names)] * len(engines)


@pytest.mark.parametrize("before", ["", "c"])
def test_another_order_is_told_to_all(engines: Engines, before: str) -> None:
    """For names that are new to all ranks; the job continues."""
    others = len(engines) - 1
    if before:
        outcomes(engines, [before] * len(engines))
    told = outcomes(engines, [*["ac"] * others, "bc"])
    values = dict.fromkeys(range(others), "'a'") | {others: "'b'"}
    for first, second in told:
        assert second is None and first is not None
        expect(first, Disagreement, "orders_differ", ranks=tuple(values), values=values)
    assert outcomes(engines, ["a"] * len(engines)) == [[None]] * len(engines)


def test_after_unequal_numbers_later_ones_are_refused_with_the_names() -> None:
    """One rank requests once more: its next request meets the other's request after that."""
    engines = engines_of(2)
    array = np.ones(3, np.float32)
    first, second = (
        [submit(engine, name, array) for name in names]
        for engine, names in zip(engines, ("xab", "ab"), strict=True)
    )
    second += [submit(engines[1], name, array) for name in "cd"]
    for rank, handles in enumerate((first, second)):
        for handle in handles[:3]:
            assert ends_within(engines[rank], handle)
            with refused(Disagreement, "orders_differ", ranks=(0, 1)):
                engines[rank].wait(handle)
    assert not engines[1].poll(second[3])  # it waits for rank 0's next, until the stall check ends the job
    shut_down(engines)


def know(engines: Engines, names: str) -> None:
    """Make these names known, so that all ranks begin them at once."""
    for _ in range(2):
        assert outcomes(engines, [names] * len(engines)) == [[None] * len(names)] * len(engines)


def test_what_is_known_is_begun(any_engines: Engines) -> None:
    know(any_engines, "abc")
    begun = [engine.counters()["begun"] for engine in any_engines]
    know(any_engines, "abc")
    assert [
        engine.counters()["begun"] - before for engine, before in zip(any_engines, begun, strict=True)
    ] == [6] * len(any_engines)


@pytest.mark.parametrize("asked", ["ba", "bc", "b"])
def test_another_order_of_what_is_known_ends_the_job(any_engines: Engines, asked: str) -> None:
    """No rank gets a result mixed of two operations, and no rank waits for ever."""
    others = len(any_engines) - 1
    know(any_engines, "abc")
    for own in outcomes(any_engines, [*["a"] * others, asked]):
        for error in own:
            assert error is not None
            expect(error, Disagreement, "orders_differ")
            assert error.values.items() >= {0: "'a'", others: "'b'"}.items()
    for engine in any_engines:
        with refused(Disagreement, "orders_differ") as caught:
            submit(engine, "later", np.ones(3, np.float32))
        assert caught.value.values[others] == "'b'"


def test_another_size_of_what_is_known_ends_the_job(any_engines: Engines) -> None:
    know(any_engines, "ab")
    arrays = [np.ones(1000 if rank == 1 else 3, np.float32) for rank in range(len(any_engines))]
    handles = [submit(engine, "a", array) for engine, array in zip(any_engines, arrays, strict=True)]
    for engine, handle in zip(any_engines, handles, strict=True):
        assert ends_within(engine, handle)
        values = {rank: str(array.shape) for rank, array in enumerate(arrays)}
        with refused(Disagreement, "disagree", tensor="a", property="shape", values=values):
            engine.wait(handle)


@pytest.mark.parametrize("leaver", [0, -1])
def test_who_leaves_is_not_waited_for(any_engines: Engines, leaver: int) -> None:
    """Also if others have begun an operation that it will never request."""
    know(any_engines, "a")
    others = any_engines[1:] if leaver == 0 else any_engines[:-1]
    arrays = [np.ones(3, np.float32) for _ in others]
    handles = [submit(engine, "a", array) for engine, array in zip(others, arrays, strict=True)]
    time.sleep(0.1)  # without it, the rank may leave before the others' request
    threading.Thread(target=any_engines[leaver].shutdown).start()
    for engine, handle in zip(others, handles, strict=True):
        assert ends_within(engine, handle)
        ranks = (leaver % len(any_engines),)
        with refused(Disagreement, "left_while_others_wait", tensor="a", ranks=ranks):
            engine.wait(handle)


@pytest.mark.parametrize("over", ["window", "exchange"])
def test_who_left_before_it_was_begun_is_not_waited_for(over: str) -> None:
    """Rank 1 begins "a" after rank 0 has left, which it reads only then: it was busy with "b"."""
    for _ in range(4):
        engines = engines_of(2, over=over)
        know(engines, "ab")
        arrays = [np.ones(2_000_000, np.float32) for _ in range(2)]
        large = [submit(engine, "large", array) for engine, array in zip(engines, arrays, strict=True)]
        small = np.ones(3, np.float32)
        handle = submit(engines[1], "a", small)
        assert ends_within(engines[0], large[0])
        threading.Thread(target=engines[0].shutdown).start()
        assert ends_within(engines[1], handle)
        with pytest.raises(HorovodInternalError) as caught:
            engines[1].wait(handle)
        assert caught.value.code in ("shut_down", "left_while_others_wait")
        shut_down(engines)


@pytest.mark.parametrize("leaver", [0, 1])
def test_who_has_begun_can_leave(leaver: int) -> None:
    """Although others do not reach the operation in which it waits."""
    engines = engines_of(2)
    know(engines, "a")
    array = np.ones(3, np.float32)
    handle = submit(engines[leaver], "a", array)
    time.sleep(0.05)
    began = time.monotonic()
    shut_down([engines[leaver]] * 2)  # by two threads: one joins
    assert time.monotonic() - began < busy.patience(20)
    with refused(Disagreement, "left_while_others_wait", ranks=(leaver,)):
        engines[leaver].wait(handle)
    shut_down(engines)


def test_nothing_is_begun_where_there_are_other_sets() -> None:
    """Two operations between the same ranks could not be distinguished."""
    engines = engines_of(2)
    know(engines, "a")
    before = engines[0].counters()["begun"]
    added = [engine.add_process_set([0]) for engine in engines]
    for engine, handle in zip(engines, added, strict=True):
        assert ends_within(engine, handle)
        engine.wait(handle)
    know(engines, "a")
    assert before > 0 and engines[0].counters()["begun"] == before
    shut_down(engines)


@pytest.mark.parametrize("late", [0, 1])
@pytest.mark.parametrize("over", ["window", "tcp"])
def test_whom_others_wait_for_is_named(over: str, late: int, capfd: pytest.CaptureFixture[str]) -> None:
    """Also if the coordinator itself has begun an operation that another rank does not request."""
    engines = engines_of(2, over=over, stall_check_time_seconds=1.0, stall_shutdown_time_seconds=2.0)
    know(engines, "a")
    array = np.ones(3, np.float32)
    handle = submit(engines[1 - late], "a", array)
    assert ends_within(engines[1 - late], handle)
    with refused(Stalled, "stalled", ranks=(late,), values={late: "a"}):
        engines[1 - late].wait(handle)
    shut_down(engines)
    warned, end, _ = capfd.readouterr().err.partition(f"\n{late}!: [a]\n")
    assert f"\n{late}: [a]\n" in warned and end


def ask_together(engine: _native.Engine, groups: Sequence[str], arrays: dict[str, np.ndarray]) -> list[int]:
    """Sums of each group, announced together."""
    handles = []
    for group in groups:
        engine.hold()
        handles += [submit(engine, name, arrays[name]) for name in group]
        engine.let_go()
    return handles


def test_other_parts_of_what_goes_together_end_the_job() -> None:
    engines = engines_of(2)
    arrays = [{name: np.ones(3, np.float32) for name in "abc"} for _ in engines]
    told: list[dict[str, Any]] = []
    for groups in ([["ab", "c"]] * 2, [["ab", "c"]] * 2, [["ab", "c"], ["abc"]]):
        asked = [ask_together(*each) for each in zip(engines, groups, arrays, strict=True)]
        for engine, handles in zip(engines, asked, strict=True):
            assert all(ends_within(engine, handle) for handle in handles)
            if groups[0] != groups[1]:
                with refused(Disagreement, "batches_differ", tensor="a") as caught:
                    engine.wait(handles[-1])
                told.append(caught.value.facts)
            else:
                for handle in handles:
                    engine.wait(handle)
    shut_down(engines)
    first, second = told
    assert first == second and (first["ranks"], first["count"]) in (([0], 1), ([1], 2))  # whoever was later


def test_swapped_operations_are_both_refused(engines: Engines) -> None:
    told = outcomes(engines, [*[["a", "b"]] * (len(engines) - 1), ["b", "a"]])
    for error in itertools.chain(*told):
        assert error is not None
        expect(error, Disagreement, "orders_differ", ranks=tuple(range(len(engines))))


def test_without_the_promise_any_order_does() -> None:
    engines = engines_of(2, in_order=False)
    assert outcomes(engines, [["a", "b"], ["b", "a"]]) == [[None, None]] * 2
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
    engines = engines_of(2)
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


class Program:
    """A random program, the same on all ranks: sums, in groups and in rounds, gathers, barriers."""

    NAMES = "abcdefgh"

    def __init__(self, seed: int, size: int) -> None:
        rng = random.Random(seed)
        self.size = size
        self.lines = []
        for line in range(60):
            rounds = ["rounds"] * (seed % 2 == 1 and line >= 30)  # from then on no operation is begun early
            what = rng.choice([*["group"] * 6, *["single"] * 3, "gather", "barrier", *rounds])
            names = rng.sample(self.NAMES, rng.randint(1, 5))
            self.lines.append((what, names, rng.random() < 0.3))
        self.sizes = {name: rng.choice([1, 3, 1000, 40_000]) for name in self.NAMES}

    def run(self, engine: _native.Engine, rank: int, seed: int) -> None:
        """Run with this rank's own waits and pauses; AssertionError if a sum is wrong."""
        rng = random.Random(seed)
        pending: dict[str, tuple[int, np.ndarray]] = {}
        for number, (what, names, all_wait) in enumerate(self.lines):
            for name in [*pending] if all_wait else [name for name in names if name in pending]:
                self.end(engine, *pending.pop(name))
            if rng.random() < 0.2:
                time.sleep(rng.random() * 0.002)
            if what in ("gather", "barrier"):
                self.end_other(engine, what, rank, number)
                continue
            if what == "group":
                engine.hold()
            for name in names if what == "group" else names[:1]:
                array = np.full(self.sizes[name], rank + 1.0, np.float32)
                pending[name] = submit(engine, name, array), array
            if what == "group":
                engine.let_go()
            if what == "rounds":
                self.end(engine, *pending.pop(names[0]))
                array = np.full(3, rank + 1.0, np.float32)
                tensor = _native.Tensor(array.ctypes.data, array.ctypes.data, [3], 6)
                handle = engine.allreduce(f"{names[0]}.round1", [tensor], _native.Reduction(), 0, True)
                self.end(engine, handle, array)
        for handle, array in pending.values():
            self.end(engine, handle, array)

    def end(self, engine: _native.Engine, handle: int, array: np.ndarray) -> None:
        assert ends_within(engine, handle), "it hangs"
        engine.wait(handle)
        assert np.all(array == sum(range(1, self.size + 1)))

    def end_other(self, engine: _native.Engine, what: str, rank: int, number: int) -> None:
        mine = np.full(rank + 1, rank, np.int64)
        if what == "barrier":
            handle = engine.barrier(f"barrier {number}")
        else:
            handle = engine.allgather(
                f"gather {number}", [_native.Tensor(mine.ctypes.data, 0, [rank + 1], 4)]
            )
        assert ends_within(engine, handle), "it hangs"
        engine.wait(handle)


@pytest.mark.parametrize("over", ["window", "exchange", "tcp"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_programs_of_any_timing(over: str, size: int) -> None:
    for seed in range(6):
        engines = engines_of(size, over=over)
        program = Program(seed, size)
        with ThreadPoolExecutor(size) as pool:
            runs = [
                pool.submit(program.run, engine, rank, 100 * seed + rank)
                for rank, engine in enumerate(engines)
            ]
            errors = [run.exception() for run in runs]
        shut_down(engines)
        assert errors == [None] * size
        assert all(engine.counters()["begun"] > 0 for engine in engines)
