"""The contract of every transport (transport/transport.h), with threads as ranks."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import busy
import numpy as np
import pytest
from native_testing import testing
from ranks import in_threads
from refusals import refused
from tcp_worlds import IS_SANITIZED, TcpJob, tcp_settings, tcp_worlds

from horovod import _native as native
from horovod.common.exceptions import CannotStart, HorovodInternalError, LostRank, WrongSetting

Worlds = Callable[[int], list[native.World]]
SIZES = (0, 1, 7, 4096, 65537, 1 << 20, (3 << 20) + 5)

OPENERS: dict[str, Worlds] = {
    "local": lambda size: native.local_worlds(size, False),
    "tcp": lambda size: tcp_worlds(size),
    "tcp with lanes": lambda size: tcp_worlds(
        size, settings=tcp_settings(deterministic=True, tcp_connections=3, tcp_checksums=True)
    ),
}


@pytest.fixture(params=OPENERS)
def opened(request: pytest.FixtureRequest) -> Worlds:
    return OPENERS[request.param]


def on_all(worlds: list[native.World], body: Callable[[native.World], Any]) -> list[Any]:
    return in_threads(len(worlds), lambda rank: body(worlds[rank]))


def next_message(world: native.World) -> bytes:
    message = testing.next_message(world, 20.0)
    assert message is not None
    return message


def data(sender: int, receiver: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng([sender, receiver, size]).integers(0, 256, size, dtype=np.uint8)


def place(rank: int, array: np.ndarray[Any, Any]) -> tuple[int, int, int]:
    return rank, array.ctypes.data, array.nbytes


def test_messages_of_each_sender_arrive_in_order(opened: Worlds) -> None:
    texts = [os.urandom(size) for size in (*SIZES, 5, 0, 300)]

    def body(world: native.World) -> None:
        others = [rank for rank in range(world.size) if rank != world.rank]
        for number, text in enumerate(texts):
            for to in others:
                testing.post(world, to, bytes([world.rank, number]) + text)
        testing.flush(world)
        seen: dict[int, list[bytes]] = {rank: [] for rank in others}
        for _ in range(len(others) * len(texts)):
            message = next_message(world)
            assert message[1] == len(seen[message[0]])
            seen[message[0]].append(message[2:])
        assert all(heard == texts for heard in seen.values())

    on_all(opened(3), body)


def test_several_connections_are_of_tcp(opened: Worlds, request: pytest.FixtureRequest) -> None:
    assert [world.has_connections for world in opened(2)] == ["[tcp" in request.node.name] * 2


def test_a_message_to_oneself(opened: Worlds) -> None:
    for world in (worlds := opened(2)):
        testing.post(world, world.rank, b"note")
    assert [next_message(world) for world in worlds] == [b"note", b"note"]


def test_post_waits_for_nobody(opened: Worlds) -> None:
    first, second = opened(2)
    sent = [os.urandom(1 << 16) for _ in range(300)]
    for text in sent:
        testing.post(second, 0, text)
    heard = threading.Thread(target=testing.flush, args=(second,))
    heard.start()
    assert [next_message(first) for _ in sent] == sent
    heard.join(20)
    assert not heard.is_alive()


def test_transfers_of_all_sizes_in_both_directions(opened: Worlds) -> None:
    """Also to the rank itself; tickets end in a different order than they start."""

    def body(world: native.World) -> None:
        tickets, arrived = [], []
        for size in SIZES:
            sent = [data(world.rank, to, size) for to in range(world.size)]
            room = [np.zeros(size, np.uint8) for _ in range(world.size)]
            outgoing = [place(to, array) for to, array in enumerate(sent)]
            incoming = [place(sender, array) for sender, array in enumerate(room)]
            tickets.append((testing.start(world, outgoing, incoming), sent))
            arrived.append(room)
        for ticket, _ in reversed(tickets):
            testing.finish(world, ticket)
        for size, room in zip(SIZES, arrived, strict=True):
            for sender, array in enumerate(room):
                assert (array == data(sender, world.rank, size)).all(), (sender, size)

    on_all(opened(3), body)


def test_who_sends_may_come_long_before_who_receives(opened: Worlds) -> None:
    """Unrequested data waits, and other transfers continue meanwhile."""
    size = 8 << 20

    def body(world: native.World) -> None:
        sent, room = data(world.rank, 9, size), np.zeros(size, np.uint8)
        if world.rank == 0:
            testing.finish(world, testing.start(world, [place(1, sent)], []))
            testing.finish(world, testing.start(world, [place(1, sent)], [place(1, room)]))
        else:
            time.sleep(0.3)
            testing.finish(world, testing.start(world, [], [place(0, room)]))
            assert (room == data(0, 9, size)).all()
            testing.finish(world, testing.start(world, [place(0, sent)], [place(0, room)]))
        assert (room == data(1 - world.rank, 9, size)).all()

    on_all(opened(2), body)


def test_a_receiver_may_be_later_than_the_limit_of_silence() -> None:
    """A receiver without room is alive and sends signs of life: it is not lost."""
    size = 80 << 20  # more than the system's buffers
    first, second = tcp_worlds(2, settings=tcp_settings(deterministic=True, tcp_timeout_seconds=2.0))

    def body(rank: int) -> None:
        if rank == 0:
            sent = data(0, 9, size)
            testing.finish(first, testing.start(first, [place(1, sent)], []))
            return
        until = busy.limit(3)
        while time.monotonic() < until:
            testing.wait(second, 100_000, False)
        room = np.zeros(size, np.uint8)
        testing.finish(second, testing.start(second, [], [place(0, room)]))
        assert (room == data(0, 9, size)).all()

    in_threads(2, body)


def test_ranks_that_are_told_differently_say_what() -> None:
    tcp = TcpJob(2)
    settings = [tcp_settings(deterministic=True, tcp_checksums=rank == 1) for rank in range(2)]
    with refused(CannotStart, "settings_differ", differences=re.compile("^HOROVOD_TCP_CHECKSUMS")):
        in_threads(2, lambda rank: tcp.open_one(rank, settings[rank]))
    with refused(WrongSetting, "tcp_timeout_too_short", setting="HOROVOD_TCP_TIMEOUT_SECONDS"):
        TcpJob(2).open(tcp_settings(tcp_timeout_seconds=1.0))


def test_messages_pass_transfers(opened: Worlds) -> None:
    def body(world: native.World) -> None:
        sent, room = data(world.rank, 0, 16 << 20), np.zeros(16 << 20, np.uint8)
        ticket = testing.start(world, [place(1 - world.rank, sent)], [])
        testing.post(world, 1 - world.rank, b"first")
        assert next_message(world) == b"first"
        testing.finish(world, testing.start(world, [], [place(1 - world.rank, room)]))
        testing.finish(world, ticket)
        assert (room == data(1 - world.rank, 0, 16 << 20)).all()

    on_all(opened(2), body)


def test_wake_ends_a_wait(opened: Worlds) -> None:
    world, other = opened(2)
    testing.receive(world)
    waker = threading.Timer(0.2, testing.wake, (world,))
    began = time.monotonic()
    waker.start()
    while time.monotonic() < began + 0.2:  # may return early
        testing.wait(world, 20_000_000, False)
    assert time.monotonic() < began + busy.patience(10)
    testing.receive(world)
    testing.wake(world)  # before the wait
    testing.wait(world, 20_000_000, False)
    assert time.monotonic() < began + busy.patience(10)
    del other


def test_who_gives_up_is_named(opened: Worlds) -> None:
    def body(world: native.World) -> None:
        if world.rank == 1:
            world.abandon()
            return
        room = np.zeros(8, np.uint8)
        with refused(LostRank, "peer_gave_up", ranks=(1,), rank=0):
            testing.finish(world, testing.start(world, [], [place(1, room)]))

    worlds = opened(2)
    on_all(worlds, body)


def test_after_cancel_nothing_is_written(opened: Worlds) -> None:
    first, second = opened(2)
    room = np.zeros(1 << 20, np.uint8)
    testing.start(first, [], [place(1, room)])
    testing.cancel(first)
    sent = data(0, 0, 1 << 20)
    with contextlib.suppress(HorovodInternalError):  # it may know of the end already
        testing.start(second, [place(0, sent)], [])
    testing.cancel(second)
    assert not room.any()


def test_a_hundred_jobs_leave_nothing_open(opened: Worlds) -> None:
    def one() -> None:
        def body(world: native.World) -> None:
            sent, room = data(world.rank, 0, 1000), np.zeros(1000, np.uint8)
            other = 1 - world.rank
            testing.finish(world, testing.start(world, [place(other, sent)], [place(other, room)]))

        on_all(opened(2), body)

    one()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(100):
        one()
    assert len(os.listdir("/proc/self/fd")) <= before


def test_more_than_two_gib(opened: Worlds, request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params["opened"] == "tcp with lanes" or IS_SANITIZED:
        pytest.skip("as the others, and slower")
    size, page = (1 << 31) + 4097, 1 << 20
    sent, room = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    sent[::page] = 1 + np.arange(len(sent[::page])) % 251
    sent[-1] = 77

    def body(world: native.World) -> None:
        if world.rank == 0:
            testing.finish(world, testing.start(world, [place(1, sent)], []))
        else:
            testing.finish(world, testing.start(world, [], [place(0, room)]))

    on_all(opened(2), body)
    for begin in range(0, size, page):  # a copy of all of it would take longer than the transfer
        assert room[begin : begin + page].tobytes() == sent[begin : begin + page].tobytes(), begin
