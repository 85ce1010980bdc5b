"""Ranks that MPI did not start meet in a store and give the core every rank's address."""

# private: _absence, _answer_roll, _session, _tell_who_can_connect: a rank that stops half-way through meeting

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import busy
import pytest
from meeting_ranks import (
    PLACE,
    MemoryStore,
    Opened,
    PlainStore,
    WaitingStore,
    error_of,
    fake_native,
    joining,
    meet,
    meet_in,
    settings_of,
)
from ranks import in_threads
from refusals import refused

import horovod
from horovod.common import errors
from horovod.common.exceptions import CannotStart
from horovod.common.rendezvous import card, meeting
from horovod.common.rendezvous.store import StoreRendezvous, assignment_of, packed, unpacked
from horovod.common.sentences import Sentence

SECRET = {"HOROVOD_SECRET": "0123456789abcdef"}


@pytest.fixture(autouse=True)
def core(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_native(monkeypatch)
    meeting._tell_who_can_connect.cache_clear()


def test_the_ranks_of_one_host(caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()
    with caplog.at_level(logging.INFO):
        meet_in(store, 3)
        worlds: list[Opened] = meet_in(store, 3)
    assert [world.rank for world in worlds] == [0, 1, 2]
    for world in worlds:
        assert (world.hosts, world.names, world.endpoints, world.secret) == (
            *(worlds[0].hosts, worlds[0].names, worlds[0].endpoints, worlds[0].secret),
        )
    assert len({*worlds[0].hosts}) == 1 and worlds[0].hosts[0].startswith(f"{socket.gethostname()} ")
    assert worlds[0].names == [f"{socket.gethostname()}, process {os.getpid()}"] * 3
    assert len({end for (end,) in worlds[0].endpoints}) == 3
    assert all(end.startswith("127.0.0.1:") for (end,) in worlds[0].endpoints)
    assert len(worlds[0].secret) == 32
    assert store.values == {}, "nothing is left, of the numbers that protect the job least of all"
    said = [record.getMessage() for record in caplog.records if "HOROVOD_SECRET" in record.getMessage()]
    assert len(said) == 1 and PLACE in said[0]
    assert meet_in(store, 3)[0].secret != worlds[0].secret


def test_one_rank_is_a_world_of_its_own() -> None:
    alone = StoreRendezvous(MemoryStore(), assignment_of(2, 4, [2]), "", seconds=1.0)
    assert meeting.open_over_tcp(settings_of(), alone).size == 1


def test_many_ranks_and_another_order() -> None:
    store = MemoryStore()
    order = [7, 3, 30, 0, *range(8, 29)]
    assignments = [assignment_of(rank, 31, order) for rank in order]
    worlds = meet([StoreRendezvous(store, each, "", seconds=20.0) for each in assignments])
    assert [world.rank for world in worlds] == list(range(len(order)))
    assert {world.secret for world in worlds} == {worlds[0].secret}


def test_the_end_of_a_meeting_leaves_the_next_one_alone() -> None:
    """A fast rank enters the next meeting before rank 0 ends this one: its hello stays."""
    store = MemoryStore()
    first = [joining(store, rank) for rank in (0, 1)]
    in_threads(2, lambda rank: first[rank].allgather("card", b"x"))
    first[1].done()
    assert not any("/hello/" in key for key in store.values), "it takes away its own"
    key = f"{first[1].prefix}/hello/1"
    store.set(key, b"of the next meeting")
    first[0].done()
    assert store.values == {key: b"of the next meeting"}


class Forgetless(MemoryStore):
    """A store that keeps its content, as the store of torchrun's agent does after a crash."""

    delete_key = None  # type: ignore[assignment]


@pytest.mark.parametrize("kind", [Forgetless, WaitingStore, PlainStore])
def test_what_earlier_processes_left_misleads_nobody(kind: type[PlainStore]) -> None:
    store = kind()
    first = meet_in(store, 3)
    left = dict(store.values)
    assert any("/hello/" in key for key in left) and any("/welcome/" in key for key in left)
    second = meet_in(store, 3)
    assert {world.secret for world in second} == {second[0].secret} != {first[0].secret}


def test_a_rank_that_comes_late_finds_what_a_dead_one_left() -> None:
    store = Forgetless()
    meet_in(store, 2)

    def rank(number: int) -> Any:
        time.sleep(0.6 * number)
        return meeting.open_over_tcp(settings_of(), joining(store, number), {})

    first, second = in_threads(2, rank)
    assert first.secret == second.secret


def test_who_does_not_come_is_named_on_all_that_did() -> None:
    store = MemoryStore()
    begin = time.monotonic()
    error = error_of(meet([joining(store, rank, 5, 0.5) for rank in (0, 1, 3)]))
    assert 0.4 < time.monotonic() - begin < busy.patience(20)
    assert error.code == errors.did_not_come.code and error.ranks == (2, 4)
    assert error.facts == {**error.facts, "size": 5, "place": PLACE, "seconds": 0.5}
    assert "HOROVOD_START_TIMEOUT" in error.remedy


def test_who_does_not_come_is_named_as_the_page_shows() -> None:
    page = Path(__file__).resolve().parents[4] / "docs" / "troubleshooting.md"
    own, name = assignment_of(0, 2, []), "torch's store at node1:29500"
    said = StoreRendezvous(MemoryStore(), own, name, seconds=30.0)._absence([1])
    assert f"CannotStart: {said}\n" in page.read_text()


def test_without_rank_0_the_others_say_so() -> None:
    with refused(errors.did_not_come, ranks=(0,), size=2, place=PLACE, seconds=0.3):
        joining(MemoryStore(), 1, seconds=0.3).allgather("card", b"")


def test_who_says_nothing_more_is_named() -> None:
    store = MemoryStore()
    both = [joining(store, rank, seconds=0.5) for rank in range(2)]

    def rank(number: int) -> None:
        if number == 1:
            both[1]._answer_roll()
            return
        with refused(errors.fell_silent, ranks=(1,), size=2, place=PLACE, seconds=0.5):
            both[0].allgather("card", b"")

    in_threads(2, rank)


def test_ranks_by_their_numbers_as_launched() -> None:
    rendezvous = StoreRendezvous(MemoryStore(), assignment_of(5, 8, [5, 7]), "the store", seconds=0.2)
    with refused(errors.did_not_come, ranks=(7,), size=2):
        rendezvous.allgather("card", b"")
    for members in ([0, 8], [0, 0]):
        with refused(errors.comm_twice_or_none, members=members, size=8, last=7):
            assignment_of(0, 8, members)
    with refused(errors.rank_outside_comm, members=[1, 2], rank=0):
        assignment_of(0, 8, [1, 2])


def test_a_value_that_is_too_large_is_nobodys() -> None:
    store = MemoryStore()
    both = [joining(store, rank) for rank in range(2)]

    def rank(number: int) -> str:
        with pytest.raises(CannotStart) as caught:
            both[number].allgather("card", bytes((card.MOST_BYTES + 1) * number))
        return str(caught.value)

    assert set(in_threads(2, rank)) == {str(errors.too_long(ranks=[1], most=65536, place=PLACE))}


def test_more_than_a_store_takes_at_once() -> None:
    store = MemoryStore()
    size, value = 40, bytes(card.MOST_BYTES - 40)
    ranks = [joining(store, rank, size, 20.0) for rank in range(size)]
    values = in_threads(size, lambda rank: ranks[rank].allgather("x", value + b"%d" % rank))
    assert values == [[value + b"%d" % rank for rank in range(size)]] * size


@pytest.mark.parametrize(
    ("kind", "method"),
    [(MemoryStore, "set"), (MemoryStore, "check"), (MemoryStore, "get"), (WaitingStore, "wait")],
)
def test_a_store_that_is_out_of_order(
    kind: type[PlainStore], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ConnectionError("Broken pipe")

    if method == "get":
        monkeypatch.setattr(kind, "check", lambda *_: True)
    monkeypatch.setattr(kind, method, broken)
    with refused(errors.store_broken, ranks=(1,), place=PLACE, why="Broken pipe"):
        joining(kind(), 1).allgather("card", b"")


def test_stores_of_other_makers() -> None:
    class Texts(PlainStore):
        """A store that does not wait, and returns str."""

        def set(self, key: str, value: bytes) -> None:
            super().set(key, value.decode("latin-1"))

        def get(self, key: str) -> Any:
            return self.values.get(key)

    assert joining(Texts(), 0, 1).allgather("x", b"value") == [b"value"]
    store = Texts()
    ranks = [joining(store, rank, 3) for rank in range(3)]
    assert in_threads(3, lambda rank: ranks[rank].allgather("x", b"%d" % rank)) == [[b"0", b"1", b"2"]] * 3
    store.get = lambda key: 7  # type: ignore[method-assign, assignment]
    with refused(errors.store_broken, ranks=(1,)) as caught:
        joining(store, 1, 3).allgather("x", b"")
    assert "get() returned 7" in caught.value.facts["why"]


@pytest.mark.parametrize(
    "data", [b"", b"\0", packed([b"a"]), packed([b"a", b"b", b"c"]), packed([b"a", b"b"])[:-1], b"\xff" * 20]
)
def test_what_rank_0_has_not_packed(data: bytes) -> None:
    with refused(errors.not_published, got=data, bytes=len(data), place="the store", size=2):
        unpacked(data, 2, "the store")
    assert unpacked(packed([b"", b"xy"]), 2, "") == [b"", b"xy"]


def two_at_once(store: MemoryStore, *ranks: int) -> list[str]:
    """The result or error of each of these ranks, of two jobs of two ranks."""
    found = [joining(store, rank, seconds=3.0) for rank in ranks]

    def meets(number: int) -> str:
        try:
            return f"{found[number].allgather('card', b'')}"
        except ValueError as error:
            return str(error)

    return in_threads(len(ranks), meets)


def test_two_jobs_in_one_store_at_once() -> None:
    """In any order at most one rank 0 continues, with one rank 1, and the others report why they do not."""

    class AtOnce(MemoryStore):
        """A store in which both ranks 0 arrive before either continues."""

        def __init__(self) -> None:
            super().__init__()
            self.both = threading.Barrier(2)

        def set(self, key: str, value: bytes) -> None:
            super().set(key, value)
            if key.endswith("/roll") and value.split()[1] == b"-":
                self.both.wait(20)

    name = f"{socket.gethostname()}, process {os.getpid()}"
    first = str(errors.two_first_ranks(process=name, place=PLACE))
    # In parallel: a rank without an answer waits for seconds.
    for said in in_threads(5, lambda _: two_at_once(AtOnce(), 0, 1, 0, 1)):
        assert first in said[::2], said
        met = [text.startswith("[") for text in said]
        assert sum(met[::2]) == sum(met[1::2]) <= 1, said


def test_the_second_rank_0_is_refused_by_the_first() -> None:
    store = MemoryStore()
    both = [joining(store, 0, seconds=20.0) for _ in range(2)]

    def rank(number: int) -> None:
        if number == 1:
            while not any(key.endswith("/called") for key in store.values):
                time.sleep(0.001)
        with refused(errors.two_first_ranks, place=PLACE):
            both[number].allgather("card", b"")

    in_threads(2, rank)


def test_the_second_of_one_number_is_told() -> None:
    """Rank 0 has accepted another process as that rank."""
    store = MemoryStore()
    rank_1 = joining(store, 1, seconds=20.0)

    def rank(number: int) -> None:
        if number == 1:
            with refused(errors.two_processes, ranks=(1,), place=PLACE):
                rank_1.allgather("card", b"")
            return
        while (asks := store.values.get(f"{rank_1.prefix}/hello/1")) is None:
            time.sleep(0.001)
        data = b"V" + packed([b"", b"c" * 32])
        store.set(f"{rank_1.prefix}/{'d' * 32}/roll/all/0", len(data).to_bytes(4, "big") + data)
        store.set(f"{rank_1.prefix}/welcome/1", asks + b"d" * 32)

    in_threads(2, rank)


def test_two_processes_of_one_number() -> None:
    """A process that repeats its earlier number is alive, beside a process with another number."""
    store = MemoryStore()
    rank_0 = joining(store, 0, seconds=20.0)
    numbers = [b"a" * 32, b"b" * 32]

    def rank(number: int) -> None:
        if number == 0:
            with refused(errors.two_processes, ranks=(1,), place=PLACE):
                rank_0.allgather("card", b"")
            return
        for each in (numbers[0], numbers[1], numbers[0]):
            store.set(f"{rank_0.prefix}/hello/1", each)
            while not store.values.get(f"{rank_0.prefix}/welcome/1", b"").startswith(each):
                if any(key.endswith("/roll/all/0") for key in store.values):
                    return
                time.sleep(0.001)

    in_threads(2, rank)


def test_a_job_goes_on_where_another_that_is_dead_has_called() -> None:
    store = MemoryStore()
    with refused(errors.did_not_come, ranks=(1,)):
        joining(store, 0, seconds=0.2).allgather("card", b"")
    assert any(key.endswith("/roll") for key in store.values)
    assert two_at_once(store, 0, 1) == [str([b"", b""])] * 2


@pytest.mark.parametrize(
    "text", [b"\x1b[31mevil\x1b]0;title\x07 " + b"A" * 9, b"3872963401", b"", b"\xff\xfe", b"\x1b \r\n"]
)
def test_what_others_write_as_a_reason_is_shown_as_such(text: bytes) -> None:
    """Control characters do not reach the terminal, and a word without a reason is refused."""
    store = MemoryStore()
    rank = joining(store, 1)
    rank._session = "s"
    data = b"E" + text
    store.set(f"{rank.prefix}/s/card/all/0", len(data).to_bytes(4, "big") + data)
    row = errors.as_rank_0_says if b"A" in text else errors.no_reason
    with refused(row) as caught:
        rank.allgather("card", b"")
    assert str(caught.value).isprintable() and len(str(caught.value).split()) > 1


def test_a_rank_that_cannot_listen_is_every_ranks_error(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_native(monkeypatch, refused="127.")
    error = error_of(meet_in(MemoryStore(), 3))
    why = "cannot listen at 127.0.0.1: Address already in use"
    assert error.code == errors.cannot_listen.code
    assert error.facts == {"ranks": [0], "host": f"{socket.gethostname()}, process {os.getpid()}", "why": why}


SHORT = str(errors.short_secret(bytes=9, least=16))


@pytest.mark.parametrize(
    ("setting", "text", "row"),
    [
        ("HOROVOD_TCP_INTERFACES", "10.0.0.0/99", errors.cannot_take_part),
        ("HOROVOD_SECRET", "too short", errors.cannot_take_part),
        *(
            ("HOROVOD_TCP_PORTS", text, errors.cannot_listen)
            for text in ("0", "65536", "7-6", "1-70000", "80,81", "http", "-5", "1-2-3")
        ),
    ],
)
def test_a_wrong_setting_of_one_rank_is_every_ranks_error(
    setting: str, text: str, row: Sentence[Any]
) -> None:
    error = error_of(meet_in(MemoryStore(), 2, [{}, {setting: text}]))
    assert (error.code, error.ranks) == (row.code, (1,))
    assert error.facts["host"] == f"{socket.gethostname()}, process {os.getpid()}"
    why = error.facts["why"]
    if setting == "HOROVOD_SECRET":
        assert why == SHORT and text not in str(error), "nobody is shown a secret"
    else:
        assert setting in why and repr(text) in why


def test_ports_that_firewalls_let_through() -> None:
    worlds = meet_in(MemoryStore(), 2, [{}, {"HOROVOD_TCP_PORTS": "20000-20100"}])
    assert worlds[0].endpoints[1] == ["127.0.0.1:20000"]
    assert meeting.tcp_ports({"HOROVOD_TCP_PORTS": "20000-20100"}) == (20000, 20100)
    assert meeting.tcp_ports({"HOROVOD_TCP_PORTS": "20000"}) == (20000, 20000)
    assert meeting.tcp_ports({"HOROVOD_TCP_PORTS": ""}) == (0, 0)


def test_a_secret_that_all_know(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        first, second = (meet_in(MemoryStore(), 2, [SECRET] * 2) for _ in range(2))
    assert first[0].secret == first[1].secret != second[0].secret
    assert not any("HOROVOD_SECRET" in record.getMessage() for record in caplog.records)
    cards = [
        card.Card("", "", "", (), None, (), bytes([number]) * 32, has_secret=True) for number in range(2)
    ]
    assert meeting.session_key(b"a", cards) != meeting.session_key(b"b", cards)
    assert meeting.session_key(b"a", cards) != meeting.session_key(b"a", cards[::-1])


def test_a_secret_that_some_know() -> None:
    error = error_of(meet_in(MemoryStore(), 3, [SECRET, {}, SECRET]))
    assert (error.code, error.facts) == (errors.secret_on_some.code, {"ranks": [0, 2], "size": 3})


def test_secrets_that_differ() -> None:
    found = meet_in(MemoryStore(), 3, [SECRET, {"HOROVOD_SECRET": "f" * 32}, SECRET])
    assert {error.code for error in found} == {errors.secrets_differ.code}
    assert [(error.facts["rank"], error.ranks) for error in found] == [(0, (1,)), (1, (0, 2)), (2, (1,))]


def test_mpi_carries_no_bytes_between_ranks_that_it_has_not_started() -> None:
    error = error_of(meet_in(MemoryStore(), 2, transport="mpi"))
    assert error.code == errors.cannot_take_part.code
    assert error.facts["why"] == str(errors.not_by_mpi(place=PLACE))


def record(**changes: Any) -> bytes:
    """A card as rank 3 may send it."""
    right = {
        "version": 1, "package": "0.29.0", "host": "b", "namespace": "b", "name": "b, process 7",
        "addresses": [["eth0", "10.0.0.2/24", 1000], ["eth1", "fd00::2/64", 0]], "route": "10.0.0.2",
        "wanted": ["eth0", "10.0.0.0/8"], "nonce": "00" * 32, "has_secret": False,
    }  # fmt: skip
    return json.dumps({name: value for name, value in {**right, **changes}.items() if value != "-"}).encode()


def test_a_card_is_read_as_it_was_written() -> None:
    mine = card.own("", True, {"HOROVOD_TCP_INTERFACES": "eth0, 10.0.0.0/8"})
    assert card.parsed(0, mine.to_bytes()) == mine
    assert mine.has_secret and mine.wanted == ("eth0", "10.0.0.0/8") and len(mine.nonce) == 32
    assert card.own("", False, {}).nonce != mine.nonce
    assert card.own("no-such-host.invalid", False, {}).route == mine.route, "by the default route"
    theirs = card.parsed(3, record())
    assert card.parsed(3, theirs.to_bytes()) == theirs


@pytest.mark.parametrize(
    "text",
    [
        b"", b"\xff", b"[]", b"7", b"[" * 100_000, record()[:-1], record() + b" " * card.MOST_BYTES,
        record(host="-"), record(host=7), record(host=""), record(host="a\nb"), record(host="x" * 301),
        record(name="\ud800"), record(namespace=None), record(addresses={}), record(addresses=["eth0"]),
        record(addresses=[["eth0", "10.0.0.2/24", -1]]), record(addresses=[["eth0", "10.0.0.2/24", True]]),
        record(addresses=[["eth0", "10.0.0.2/240", 1]]), record(addresses=[["eth0", "host", 1]]),
        record(addresses=[["eth0", "fe80::1%eth0/64", 1]]), record(addresses=[["e", "10.0.0.2/24", 1]] * 201),
        record(addresses=[["eth0", 167772162, 1]]), record(route=5), record(route="host"),
        record(route="fe80::1%1"), record(wanted="eth0"), record(wanted=[["eth0"]]), record(wanted=["a/b"]),
        record(wanted=["e"] * 65), record(nonce="00" * 31), record(nonce="xx" * 32), record(nonce=0),
        record(has_secret=1), record(has_secret="-"), record(error=5, name="-"),
    ],
)  # fmt: skip
def test_a_card_that_is_none(text: bytes) -> None:
    with refused(errors.misunderstood, ranks=(3,), bytes=len(text)) as caught:
        card.parsed(3, text)
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize("version", [0, 2, "1", None, "-"])
def test_a_card_of_another_release(version: Any) -> None:
    with refused(errors.other_release, ranks=(3,), got="horovod 0.29.0", expected=horovod.__version__):
        card.parsed(3, record(version=version))
    with refused(errors.other_release, ranks=(3,), got="something else"):
        card.parsed(3, record(version=version, package=["x"]))


@pytest.mark.parametrize(
    "said",
    [
        {}, [], {"ports": []}, {"ports": [1, 2]}, {"ports": ["80"]}, {"ports": [0]}, {"ports": [65536]},
        {"ports": [True]}, {"ports": [4.0]}, {"error": 5}, {"error": "two\nlines"},
    ],
)  # fmt: skip
def test_ports_that_are_none(said: Any) -> None:
    whole = {"proof": "", **said} if isinstance(said, dict) else said
    other = card.parsed(3, record())
    for text in (json.dumps(whole).encode(), b'{"ports": [80]}'):
        with refused(errors.misunderstood, ranks=(3,), got=text[:80]):
            meeting.said_by(3, text, other, 1)
    assert meeting.said_by(3, b'{"ports": [80], "proof": "x"}', other, 1) == ([80], "x")
