"""Settings that change while a job runs: all ranks change them between the same two operations."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from ranks import ends_within, submit
from tcp_worlds import tcp_settings, tcp_worlds

from horovod import _native as native
from horovod.common.exceptions import HorovodInternalError
from horovod.common.options import CORE, OPTIONS

NAME = "horovod.tune"
# Values of every tuned setting; replaced if they are equivalent for these tensors, or slow.
CHOICES = {option.variable: option.tries for option in OPTIONS if option.part == CORE and option.tries} | {
    "HOROVOD_FUSION_THRESHOLD": ("0", "4096", "65536", "134217728"),
    "HOROVOD_CYCLE_TIME": ("0.1", "1", "3"),
    "HOROVOD_ALLREDUCE_ALGORITHM": (
        "auto",
        "gather",
        "scatter",
        "ring",
        "hierarchical",
        "gather:3000,scatter",
    ),
}


def engines_of(size: int, over: str, in_order: bool = False) -> list[native.Engine]:
    """`over`: TCP; or threads that share a window, exchange messages, or form two "hosts"."""
    settings = tcp_settings(cache_capacity=1 << 40)
    if over == "hosts":
        worlds = native.local_worlds(size, True, [rank * 2 // size for rank in range(size)])
    else:
        worlds = tcp_worlds(size) if over == "tcp" else native.local_worlds(size, over == "window")
    return [native.Engine(world, settings, in_order=in_order) for world in worlds]


def shut_down(engines: list[native.Engine]) -> None:
    threads = [threading.Thread(target=engine.shutdown) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def text_of(result: native.Result) -> str:
    return np.from_dlpack(result.buffer()).tobytes().decode()


def tuned(engines: list[native.Engine], lines: str) -> list[str]:
    """The settings that each rank receives when rank 0 sends these."""
    handles = [engine.tune(NAME, lines if rank == 0 else "") for rank, engine in enumerate(engines)]
    assert all(ends_within(engine, handle) for engine, handle in zip(engines, handles, strict=True))
    return [text_of(engine.wait(handle)) for engine, handle in zip(engines, handles, strict=True)]


@pytest.fixture(params=["window", "exchange", "tcp"])
def three(request: pytest.FixtureRequest):  # type: ignore[no-untyped-def]
    engines = engines_of(3, request.param)
    yield engines
    shut_down(engines)


def buckets_of_a_series(engines: list[native.Engine]) -> set[int]:
    """The numbers of buckets for eight tensors that each rank submits at once."""
    before = [engine.counters()["buckets"] for engine in engines]
    arrays = [[np.ones(256, np.float32) for _ in range(8)] for _ in engines]
    handles = []
    for engine, own in zip(engines, arrays, strict=True):
        engine.hold()
        handles.append([submit(engine, f"s{i}", array) for i, array in enumerate(own)])
        engine.let_go()
    for engine, own in zip(engines, handles, strict=True):
        for handle in own:
            engine.wait(handle)
    return {engine.counters()["buckets"] - count for engine, count in zip(engines, before, strict=True)}


def test_rank_0s_lines_are_everybodys(three: list[native.Engine]) -> None:
    lines = "phase=searching\nHOROVOD_CYCLE_TIME=2\nHOROVOD_COMPRESSION=none"
    assert [engine.tuned for engine in three] == ["", "", ""]
    assert tuned(three, lines) == [lines] * 3 == [engine.tuned for engine in three]


def test_fusion_changes(three: list[native.Engine]) -> None:
    assert buckets_of_a_series(three) == {1}
    tuned(three, "HOROVOD_FUSION_THRESHOLD=0")
    assert buckets_of_a_series(three) == {8}
    tuned(three, "HOROVOD_FUSION_THRESHOLD=2048")
    assert buckets_of_a_series(three) == {4}
    tuned(three, "HOROVOD_CYCLE_TIME=2")
    assert buckets_of_a_series(three) == {4}, "what is not named stays"


def test_process_sets_too() -> None:
    engines = engines_of(3, "exchange")
    added = [engine.add_process_set([0, 2]) for engine in engines]
    number = {engine.wait(handle).sizes[0] for engine, handle in zip(engines, added, strict=True)}.pop()
    members = [engines[0], engines[2]]

    def buckets() -> set[int]:
        before = [engine.counters(number)["buckets"] for engine in members]
        arrays = [[np.ones(64, np.float32) for _ in range(4)] for _ in members]
        handles = []
        for engine, own in zip(members, arrays, strict=True):
            engine.hold()
            handles.append([submit(engine, f"p{i}", each, process_set=number) for i, each in enumerate(own)])
            engine.let_go()
        for engine, own in zip(members, handles, strict=True):
            for handle in own:
                engine.wait(handle)
        return {e.counters(number)["buckets"] - b for e, b in zip(members, before, strict=True)}

    assert buckets() == {1}
    tuned(engines, "HOROVOD_FUSION_THRESHOLD=0")
    assert buckets() == {4}
    shut_down(engines)


def test_a_wrong_value_is_refused_where_it_is_given(three: list[native.Engine]) -> None:
    for lines, what in [
        ("HOROVOD_CYCLE_TIME=-1", "HOROVOD_CYCLE_TIME.*a number >= 0"),
        ("HOROVOD_FUSION_THRESHOLD=x", "a whole number"),
        ("HOROVOD_ALLREDUCE_ALGORITHM=best", "one of auto"),
        ("HOROVOD_ALLREDUCE_ALGORITHM=gather:x,scatter", "a whole number"),
        ("HOROVOD_ALLREDUCE_ALGORITHM=gather:9,best", "one of auto"),
        ("HOROVOD_TCP_CONNECTIONS=17", "<= 16"),
        ("HOROVOD_STEPS_UNDER_WAY=9", "<= 8"),
    ]:
        with pytest.raises(ValueError, match=what):
            three[0].tune(NAME, lines)
    assert tuned(three, "a=1") == ["a=1"] * 3, "nobody waits for what was refused"


def test_what_may_not_change_does_not(three: list[native.Engine]) -> None:
    """The engine ignores lines of other settings, which Python handles."""
    tuned(three, "HOROVOD_CACHE_CAPACITY=x\nHOROVOD_TRANSPORT=none\nno line\n=\n")
    assert buckets_of_a_series(three) == {1}


def test_ranks_that_have_joined_hear_of_it(three: list[native.Engine]) -> None:
    joined = three[2].join()
    handles = [three[0].tune(NAME, "HOROVOD_FUSION_THRESHOLD=0"), three[1].tune(NAME, "")]
    for engine, handle in zip(three[:2], handles, strict=True):
        assert ends_within(engine, handle) and text_of(engine.wait(handle)) == "HOROVOD_FUSION_THRESHOLD=0"
    others = [engine.join() for engine in three[:2]]
    for engine, handle in zip(three, [*others, joined], strict=True):
        engine.wait(handle)
    assert [engine.tuned for engine in three] == ["HOROVOD_FUSION_THRESHOLD=0"] * 3
    assert buckets_of_a_series(three) == {8}


def test_without_rank_0_nothing_changes(three: list[native.Engine]) -> None:
    """It has joined: the others get an empty answer, and ask again after its return."""
    joined = three[0].join()
    handles = [engine.tune(NAME, "") for engine in three[1:]]
    for engine, handle in zip(three[1:], handles, strict=True):
        assert ends_within(engine, handle) and text_of(engine.wait(handle)) == ""
    others = [engine.join() for engine in three[1:]]
    for engine, handle in zip(three, [joined, *others], strict=True):
        engine.wait(handle)
    assert buckets_of_a_series(three) == {1}


def test_other_operations_under_its_name_are_refused(three: list[native.Engine]) -> None:
    handles = [three[0].tune(NAME, ""), three[1].tune(NAME, ""), three[2].barrier(NAME)]
    for engine, handle in zip(three, handles, strict=True):
        with pytest.raises(HorovodInternalError, match=r"disagree on the operation.*TUNE.*BARRIER"):
            engine.wait(handle)


# 210 programs: sums are correct, ranks end with the same settings, and no rank waits for ever.
@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize(("over", "in_order", "count"), [
    ("window", False, 10), ("exchange", False, 10), ("hosts", False, 10), ("tcp", False, 5),
    ("window", True, 10), ("exchange", True, 10), ("hosts", True, 10), ("tcp", True, 5),
])  # fmt: skip
def test_random_changes(size: int, over: str, in_order: bool, count: int) -> None:
    engines = engines_of(size, over, in_order)
    for number in range(count):
        draw = random.Random(f"{size} {over} {in_order} {number}")
        program = [_drawn(draw) for _ in range(draw.randint(5, 20))]
        with ThreadPoolExecutor(size) as pool:
            ran = [
                pool.submit(_run, engine, rank, size, program, in_order)
                for rank, engine in enumerate(engines)
            ]
            results = [one.result(timeout=60) for one in ran]
        for result in results[1:]:
            assert result == results[0]
        assert len({engine.tuned for engine in engines}) == 1
    shut_down(engines)


Step = tuple[
    list[int], str
]  # sizes of tensors submitted together; rank 0's decision after them, or ""


def _drawn(draw: random.Random) -> Step:
    sizes = [draw.choice([1, 7, 500, 20_000]) for _ in range(draw.randint(1, 5))]
    changes = draw.sample(sorted(CHOICES), draw.randint(0, 2))
    return sizes, "\n".join(f"{name}={draw.choice(CHOICES[name])}" for name in changes)


def _run(engine: native.Engine, rank: int, size: int, program: list[Step], in_order: bool) -> list[bytes]:
    """Run a rank; return its decisions and sums. Decisions overlap with the next tensors."""
    draw = random.Random(rank)
    heard, under_way = [], None
    for sizes, lines in program:
        arrays = [np.full(count, (rank + 1.0) * (i + 1), np.float32) for i, count in enumerate(sizes)]
        order = list(range(len(sizes)))
        if not in_order:
            draw.shuffle(order)
        engine.hold()
        handles = [submit(engine, f"t{i}.{sizes[i]}", arrays[i]) for i in order]
        engine.let_go()
        for handle in handles:
            engine.wait(handle)
        total = size * (size + 1) / 2
        assert all(np.all(array == total * (i + 1)) for i, array in enumerate(arrays))
        heard += [array.tobytes() for array in arrays]
        if under_way is not None:
            heard.append(text_of(engine.wait(under_way)).encode())
            under_way = None
        if lines:
            under_way = engine.tune(NAME, lines if rank == 0 else "")
    if under_way is not None:
        heard.append(text_of(engine.wait(under_way)).encode())
    return heard
