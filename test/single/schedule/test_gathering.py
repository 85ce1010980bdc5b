"""When submissions are announced and which share a bucket, at the limits to the byte and millisecond.

The worlds have one rank and no thread; the argument of step() is the clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from ranks import AVERAGE, MAX, MIN, SUM, stepped_engines, submit, tensor

from horovod import _native

THRESHOLD = 1000  # bytes
CYCLE = 8.0  # milliseconds


def settings(**given: Any) -> _native.Settings:
    made = _native.Settings()
    made.fusion_threshold, made.cycle_time = THRESHOLD, CYCLE
    for name, value in given.items():
        setattr(made, name, value)
    return made


def elements(size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array of `size` bytes."""
    return np.ones(size, np.uint8)


# ---- until when submissions are gathered ----


@pytest.mark.parametrize(("second", "is_enough"), [(399, False), (400, True)])
def test_gathering_ends_with_the_byte_that_fills_a_bucket(second: int, is_enough: bool) -> None:
    with stepped_engines(1, settings()) as [engine]:
        tensors = [elements(600), elements(second)]
        submit(engine, "a", tensors[0])
        assert not engine.step()
        submit(engine, "b", tensors[1])
        assert engine.step() == is_enough
        assert engine.counters()["announcements"] == engine.counters()["buckets"] == int(is_enough)


def test_each_gathering_counts_from_nothing() -> None:
    with stepped_engines(1, settings()) as [engine]:
        for round_number in range(2):
            x, y = elements(THRESHOLD - 1), elements(1)
            submit(engine, f"x{round_number}", x)
            assert not engine.step(), "one byte is missing"
            submit(engine, f"y{round_number}", y)
            assert engine.step()


def test_all_tensors_of_a_group_count() -> None:
    with stepped_engines(1, settings()) as [engine]:
        arrays = [elements(500), elements(500)]
        engine.allreduce("group", [tensor(x) for x in arrays], _native.Reduction())
        assert engine.step()


def test_one_submission_waits_for_a_cycle() -> None:
    with stepped_engines(1, settings()) as [engine]:
        x = elements(1)
        handle = submit(engine, "a", x)
        assert not engine.step(CYCLE - 0.001) and not engine.poll(handle)
        assert engine.step(0.001) and engine.poll(handle)


def announced_after(times: Sequence[float]) -> float:
    """When submissions at these times are announced: milliseconds after the first, to 0.5 ms."""
    with stepped_engines(1, settings()) as [engine]:
        arrays = [elements(1) for _ in times]
        at, next_one = 0.0, 0
        while True:
            while next_one < len(times) and times[next_one] <= at:
                submit(engine, f"t{next_one}", arrays[next_one])
                next_one += 1
            if engine.step(0.5 if at else 0.0):
                return at
            at += 0.5


def test_a_quick_series_is_gathered_until_it_ends_but_for_four_cycles_at_most() -> None:
    quarter = CYCLE / 4
    assert announced_after([0.0, 7.0]) == pytest.approx(7.0 + quarter, abs=0.5)
    assert announced_after([0.0, 5.0]) == pytest.approx(CYCLE, abs=0.5), (
        "a quarter of a cycle has passed by then"
    )
    series = [1.5 * number for number in range(9)]  # each comes within a quarter cycle
    assert announced_after(series) == pytest.approx(series[-1] + quarter, abs=0.5)
    assert announced_after([1.5 * number for number in range(100)]) == pytest.approx(4 * CYCLE, abs=0.5)


def test_a_rank_whose_last_words_are_unanswered_gathers_for_twenty_cycles() -> None:
    """A full queue means that another rank is late; more messages would not help."""
    with stepped_engines(2, settings()) as engines:
        _, late = engines
        x, y = elements(1), elements(1)
        submit(late, "x", x)
        assert late.step(CYCLE)
        submit(late, "y", y)
        assert late.counters()["announcements"] == 1
        late.step(19 * CYCLE)
        assert late.counters()["announcements"] == 1
        late.step(CYCLE)
        assert late.counters()["announcements"] == 2
        for engine in engines:
            engine.shutdown()


# ---- what shares a bucket ----


def buckets(sizes: Sequence[int | tuple[int, ...]], **given: Any) -> int:
    with stepped_engines(1, settings(cycle_time=1.0, **given)) as [engine]:
        kept = [[elements(each) for each in ((size,) if isinstance(size, int) else size)] for size in sizes]
        for number, arrays in enumerate(kept):
            engine.allreduce(f"t{number}", [tensor(x) for x in arrays], _native.Reduction())
        engine.step(100.0)
        while engine.step(100.0):
            pass
        return engine.counters()["buckets"]


@pytest.mark.parametrize(
    ("sizes", "count"),
    [
        ([600, 400], 1),
        ([600, 401], 2),
        ([600, 401, 599], 2),  # the last fills the second's bucket
        ([600, 401, 600], 3),
        ([1000, 1], 2),
        ([1001, 1, 999], 2),  # a tensor larger than a bucket gets a separate bucket
        ([(300, 300), 400], 1),
        ([(300, 300), 401], 2),
        ([400, (300, 301)], 2),
        ([0, 1000, 0], 1),
    ],
)
def test_a_bucket_is_full_at_the_threshold(sizes: list[int | tuple[int, ...]], count: int) -> None:
    assert buckets(sizes) == count


@pytest.mark.parametrize(("is_apart", "count"), [(False, 1), (True, 2)])
def test_groups_can_be_kept_apart(is_apart: bool, count: int) -> None:
    assert buckets([(5, 5), 5], disable_group_fusion=is_apart) == count


def test_a_threshold_of_one_byte_and_of_none() -> None:
    assert buckets([0, 1, 1], fusion_threshold=1) == 2
    assert buckets([0, 1, 1], fusion_threshold=0) == 3


ALIKE: dict[str, Any] = {"op": SUM, "prescale": 1.0, "postscale": 1.0, "codec": None}


@pytest.mark.parametrize(
    "other",
    [
        {"op": AVERAGE},
        {"op": MIN},
        {"op": MAX},
        {"prescale": 0.5},
        {"postscale": 0.5},
        {"codec": "bit8/128"},
        {"dtype": np.float64},
    ],
    ids=str,
)
def test_tensors_that_differ_in_one_thing_never_share_one(other: dict[str, Any]) -> None:
    """Equal tensors share a bucket, even with others between them."""
    with stepped_engines(1, settings()) as [engine]:
        kept = []
        for number in range(4):
            how = ALIKE | (other if number % 2 else {})
            kept.append(np.ones(4, how.pop("dtype", np.float32)))
            codec = how.pop("codec")
            how["codec"] = codec and _native.codec_named(codec)
            submit(engine, f"t{number}", kept[-1], **how)
        while engine.step(100.0):
            pass
        assert engine.counters()["buckets"] == 2
