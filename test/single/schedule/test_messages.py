"""Messages that no rank of this build writes are refused at once, with their sender's name."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from native_testing import testing
from ranks import source_only, submit
from refusals import refused

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
        world.abandon()  # callers need not wait for a rank that sends invalid messages
    for engine in engines:
        engine.shutdown()


def text(of: str) -> bytes:
    encoded = os.fsencode(of)
    return struct.pack("<I", len(encoded)) + encoded


def request(operation: int = ALLREDUCE, name: str = "x") -> bytes:
    """A request of a sum of one float32 tensor of shape (2,)."""
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
    return struct.pack("<IIBI", 1, 0, kind, len(items)) + b"".join(items) + struct.pack("<IH", 0, 0)


def test_what_is_made_here_is_what_ranks_write(two_ranks: Ranks) -> None:
    worlds, engines = two_ranks
    submit(engines[1], "x", np.ones(2, np.float32))
    engines[1].step(5.0)
    assert testing.receive(worlds[0]) == announcement(request())
    assert testing.rewritten_responses(response(item("x"))) == response(item("x"))


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (announcement(request())[:-1], "cut short"),
        (announcement(request()) + b"x", " 1 bytes more"),
        (announcement(request(operation=99)), "number 99"),
        (announcement(request(), request()), "twice for 'x'"),
        (announcement(*[request(name="\udcff{what}")] * 2), r"twice for '\\xff\{what\}'"),
        (announcement(answers=1), "was not asked"),
    ],
)
def test_rank_0_names_who_sent_it(two_ranks: Ranks, message: bytes, said: str) -> None:
    worlds, engines = two_ranks
    testing.post(worlds[1], 0, message)
    with refused(HorovodInternalError, ranks=(1,), what=re.compile(said)):
        engines[0].step(1.0)


def test_an_operation_of_a_set_that_the_rank_is_not_in(two_ranks: Ranks) -> None:
    worlds, engines = two_ranks
    added = [engine.add_process_set([0]) for engine in engines]
    while not all(engine.poll(handle) for engine, handle in zip(engines, added, strict=True)):
        for engine in engines:
            engine.step(1.0)
    testing.post(worlds[1], 0, announcement(request(), process_set=1))
    said = re.compile(r"process set 1 \(ranks 0\)")
    with refused(HorovodInternalError, "announcement_wrong", ranks=(1,), what=said):
        engines[0].step(1.0)


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        (response(item("gather", (2,))), "coordinator_wrong", "rows .*'gather'"),
        (response(item("gather", (2, 3))), "coordinator_wrong", "rows .*'gather'"),
        (response(item("gather", (-1, 2))), "broken_message", "'gather' has -1 rows"),
        (response(item("x"), item("gather", (2, 2))), "coordinator_wrong", "'x' and 'gather'"),
        (response(), "broken_message", "responds to nothing"),
        (response(item("x"), kind=99), "broken_message", "number 99"),
        (response(item("y", stand_in=request(ALLGATHER, "y"))), "broken_message", "take part in ALLGATHER"),
    ],
)
def test_a_rank_does_nothing_of_a_wrong_response(
    two_ranks: Ranks, message: bytes, code: str, said: str
) -> None:
    worlds, engines = two_ranks
    values = np.ones(2, np.float32)
    submit(engines[1], "x", values)
    engines[1].allgather("gather", [source_only(values)])
    engines[1].step(5.0)
    testing.post(worlds[0], 1, message)
    ranks = (0,) if code == "broken_message" else ()
    with refused(HorovodInternalError, code, ranks=ranks, what=re.compile(said)):
        engines[1].step(1.0)
