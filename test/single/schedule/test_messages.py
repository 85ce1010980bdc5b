"""Messages that no rank of this build writes: refused, naming the sender, before anything is done."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pytest
from ranks import source_only, submit

from horovod import _native
from horovod.common.exceptions import HorovodInternalError

ALLREDUCE, ALLGATHER = 0, 1
RUN = 0
Ranks = tuple[list[_native.World], list[_native.Engine]]


@pytest.fixture
def two_ranks() -> Iterator[Ranks]:
    worlds = _native.local_worlds(2)
    engines = [_native.Engine(world, _native.Settings(), start_thread=False) for world in worlds]
    yield worlds, engines
    for world in worlds:
        world.abandon()  # who waits for a rank that says nonsense need not
    for engine in engines:
        engine.shutdown()


def text(of: str) -> bytes:
    return struct.pack("<I", len(of)) + of.encode()


def request(operation: int = ALLREDUCE, name: str = "x") -> bytes:
    """Of one float32 tensor of shape (2,), to be summed."""
    head = struct.pack("<BBddi??", operation, 1, 1.0, 1.0, -1, False, False) + text(name) + text("")
    return head + struct.pack("<IB", 1, 6) + struct.pack("<IIq", 1, 1, 2) + struct.pack("<II", 0, 0)


def announcement(*requests: bytes, process_set: int = 0, answers: int = 0) -> bytes:
    head = struct.pack("<II?I", 1, process_set, False, answers) + struct.pack("<I", 0)
    not_blocked = text("") + struct.pack("<?", False)
    no_pass = struct.pack("<I", 0) + text("")
    no_order = struct.pack("<I?I", 0, False, 0)
    return head + struct.pack("<I", len(requests)) + b"".join(requests) + no_order + not_blocked + no_pass


def item(name: str, rows: tuple[int, ...] = (), stand_in: bytes = b"") -> bytes:
    numbers = struct.pack(f"<II{len(rows)}q", 0, len(rows), *rows)
    not_completed = struct.pack("<?", False)
    has_stand_in = struct.pack("<?", bool(stand_in))
    return struct.pack("<I", 0) + text(name) + numbers + not_completed + has_stand_in + stand_in


def response(*items: bytes, kind: int = RUN) -> bytes:
    return struct.pack("<IIBI", 1, 0, kind, len(items)) + b"".join(items) + struct.pack("<III", 0, 0, 0)


def test_what_is_made_here_is_what_ranks_write(two_ranks: Ranks) -> None:
    worlds, engines = two_ranks
    submit(engines[1], "x", np.ones(2, np.float32))
    engines[1].step(5.0)
    assert worlds[0].receive() == announcement(request())
    assert _native.rewritten_responses(response(item("x"))) == response(item("x"))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (announcement(request())[:-1], "rank 1 sent a message that is cut short"),
        (announcement(request()) + b"x", "rank 1 sent a message that has 1 bytes more"),
        (announcement(request(operation=99)), "has the number 99, which stands for nothing"),
        (announcement(request(), request()), "rank 1 asked twice for 'x'"),
        (announcement(answers=1), "rank 1 answered what it was not asked"),
    ],
)
def test_rank_0_names_who_sent_it(two_ranks: Ranks, message: bytes, said: str) -> None:
    worlds, engines = two_ranks
    worlds[1].post(0, message)
    with pytest.raises(HorovodInternalError, match=said):
        engines[0].step(1.0)


def test_an_operation_of_a_set_that_the_rank_is_not_in(two_ranks: Ranks) -> None:
    worlds, engines = two_ranks
    added = [engine.add_process_set([0]) for engine in engines]
    while not all(engine.poll(handle) for engine, handle in zip(engines, added, strict=True)):
        for engine in engines:
            engine.step(1.0)
    worlds[1].post(0, announcement(request(), process_set=1))
    with pytest.raises(
        HorovodInternalError, match=r"rank 1 .* of process set 1 \(ranks 0\), in which it is not"
    ):
        engines[0].step(1.0)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (response(item("gather", (2,))), "other rows of 'gather' than this rank"),
        (response(item("gather", (2, 3))), "other rows of 'gather' than this rank"),
        (response(item("gather", (-1, 2))), "rank 0 sent a message that says that 'gather' has -1 rows"),
        (
            response(item("x"), item("gather", (2, 2))),
            "'x' and 'gather' carried out together, which are unlike",
        ),
        (response(), "rank 0 sent a message that responds to nothing"),
        (response(item("x"), kind=99), "has the number 99, which stands for nothing"),
        (
            response(item("y", stand_in=request(ALLGATHER, "y"))),
            "ranks that have joined take part in ALLGATHER",
        ),
    ],
)
def test_a_rank_does_nothing_of_a_wrong_response(two_ranks: Ranks, message: bytes, said: str) -> None:
    worlds, engines = two_ranks
    values = np.ones(2, np.float32)
    submit(engines[1], "x", values)
    engines[1].allgather("gather", [source_only(values)])
    engines[1].step(5.0)
    worlds[0].post(1, message)
    with pytest.raises(HorovodInternalError, match=said):
        engines[1].step(1.0)
