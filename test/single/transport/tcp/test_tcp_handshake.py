"""Which connections may join a job over TCP: the handshake against its twin, and the answers to strangers."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import resource
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from native_testing import testing
from ranks import in_threads
from refusals import refused
from tcp_worlds import (
    ANSWER,
    CHALLENGE,
    HELLO,
    IS_SANITIZED,
    MAGIC,
    TcpJob,
    answer,
    header,
    hello,
    received,
    tcp_settings,
)

from horovod.common.exceptions import CannotStart, HorovodInternalError, LostRank, follows_others, lost_ranks

LIMIT = 20.0


@pytest.mark.parametrize("length", [0, 1, 55, 56, 63, 64, 65, 119, 1000])
def test_sha256_and_hmac_are_the_standards(length: int) -> None:
    text = os.urandom(length)
    assert testing.sha256(text) == hashlib.sha256(text).digest()
    assert testing.hmac_sha256(b"key", text) == hmac.new(b"key", text, "sha256").digest()
    assert testing.hmac_sha256(text, b"text") == hmac.new(text, b"text", "sha256").digest()


@pytest.mark.parametrize("length", [0, 1, 7, 8, 9, 63, 1000, 100_003])
def test_crc32c_of_the_instruction_is_the_table_s(length: int) -> None:
    text = os.urandom(length)
    assert testing.crc32c(text) == testing.crc32c_by_table(text)


def test_ranks_meet_by_ipv6() -> None:
    if not socket.has_ipv6:
        pytest.skip("this Python has no IPv6")
    try:
        tcp = TcpJob(2, address="::1")
    except ValueError as error:
        pytest.skip(f"there is no IPv6 here: {error}")
    assert tcp.endpoints[0][0].startswith("[::1]:")
    assert [world.rank for world in tcp.open()] == [0, 1]


def test_crc32c_is_the_standard_s() -> None:
    assert testing.crc32c(b"123456789") == 0xE3069283  # RFC 3720
    assert testing.crc32c(bytes(32)) == 0x8A9136AA


class Job:
    """Two ranks in a job; rank 0 receives until it is closed."""

    def __init__(self) -> None:
        self.tcp = TcpJob(2)
        self.worlds = self.tcp.open()
        self._stop = threading.Event()
        self._pump = threading.Thread(target=self._turn)
        self._pump.start()

    def _turn(self) -> None:
        while not self._stop.is_set():
            testing.wait(self.worlds[0], 10_000)
            testing.receive(self.worlds[0])

    def close(self) -> None:
        self._stop.set()
        self._pump.join()

    def works(self) -> None:
        """The two ranks still exchange data."""
        self.close()

        def body(rank: int) -> None:
            sent, room = np.full(100_000, rank, np.uint8), np.empty(100_000, np.uint8)
            other, world = 1 - rank, self.worlds[rank]
            places = [[(other, each.ctypes.data, 100_000)] for each in (sent, room)]
            ticket = testing.start(world, *places)
            testing.finish(world, ticket)
            assert (room == other).all()

        in_threads(2, body)


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.close()


def challenge_of(connection: socket.socket) -> bytes:
    connection.settimeout(LIMIT)
    challenge = received(connection, CHALLENGE)
    assert challenge.startswith(MAGIC) and len(challenge) == CHALLENGE
    return challenge


def test_who_knows_the_secret_is_answered(job: Job) -> None:
    with job.tcp.connect(0) as connection:
        challenge = challenge_of(connection)
        said = hello(challenge, job.tcp.secret, rank=1, to=0, lane=1, size=2)
        assert len(said) == HELLO
        connection.sendall(said)
        assert received(connection, ANSWER) == answer(said, challenge, job.tcp.secret)
        connection.sendall(header(5, 0))  # goodbye
    time.sleep(0.1)


def wrong_hellos(secret: bytes) -> dict[str, object]:
    def good(challenge: bytes) -> bytes:
        return hello(challenge, secret, 1, 0, 1, 2)

    return {
        "garbage": lambda challenge: os.urandom(HELLO),
        "zeros": lambda challenge: bytes(HELLO),
        "http": lambda challenge: b"GET / HTTP/1.1\r\nHost: here\r\n\r\n" * 4,
        "wrong secret": lambda challenge: hello(challenge, secrets.token_bytes(32), 1, 0, 1, 2),
        "of another challenge": lambda challenge: hello(MAGIC + bytes(32), secret, 1, 0, 1, 2),
        "a bit of the proof": lambda challenge: good(challenge)[:-1] + bytes([good(challenge)[-1] ^ 1]),
        "reordered": lambda challenge: good(challenge)[48:] + good(challenge)[:48],
        "for another rank": lambda challenge: hello(challenge, secret, 1, 1, 1, 2),
        "of another size": lambda challenge: hello(challenge, secret, 1, 0, 1, 3),
        "of no rank": lambda challenge: hello(challenge, secret, 2, 0, 1, 2),
        "of the rank itself": lambda challenge: hello(challenge, secret, 0, 0, 1, 2),
        "its own answer": lambda challenge: answer(good(challenge), challenge, secret) + bytes(48),
    }


@pytest.mark.parametrize("which", wrong_hellos(b""))
def test_whoever_does_not_is_closed_and_told_nothing(job: Job, which: str) -> None:
    with job.tcp.connect(0) as connection:
        challenge = challenge_of(connection)
        connection.sendall(wrong_hellos(job.tcp.secret)[which](challenge))  # type: ignore[operator]
        assert received(connection, 1) == b""
    job.works()


def test_a_hello_heard_before_opens_nothing(job: Job) -> None:
    with job.tcp.connect(0) as first, job.tcp.connect(0) as second:
        said = hello(challenge_of(first), job.tcp.secret, 1, 0, 1, 2)
        challenge_of(second)
        second.sendall(said)
        assert received(second, 1) == b""
    job.works()


@pytest.mark.parametrize("length", [0, 1, 16, 79])
def test_a_hello_cut_short(job: Job, length: int) -> None:
    with job.tcp.connect(0) as connection:
        connection.sendall(hello(challenge_of(connection), job.tcp.secret, 1, 0, 1, 2)[:length])
    job.works()


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """More than the usual soft limit of 1024 file descriptors, if the hard limit allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4096
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"this process may have {hard} descriptors, and the test takes up to {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_that_only_hold_connections(
    many_descriptors: None, job: Job, capfd: pytest.CaptureFixture[str]
) -> None:
    with ExitStack() as held:
        for _ in range(1000):
            held.enter_context(job.tcp.connect(0))
        job.works()
    lines = [line for line in capfd.readouterr().err.splitlines() if "refused" in line]
    assert 1 <= len(lines) <= 11  # at 1, 2, 4, ...


def test_what_a_rank_dials_has_to_know_the_secret_too() -> None:
    """A stranger that listens at rank 0's address learns nothing, and no rank joins it."""
    tcp = TcpJob(2)
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        heard: list[bytes] = []

        def pretend() -> None:
            while True:
                try:
                    connection, _ = stranger.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(MAGIC + bytes(32))
                    heard.append(received(connection, HELLO))
                    connection.sendall(answer(heard[-1], MAGIC + bytes(32), bytes(32)))

        thread = threading.Thread(target=pretend, daemon=True)
        thread.start()
        tcp.endpoints[0] = [f"127.0.0.1:{stranger.getsockname()[1]}", *tcp.endpoints[0]]
        worlds = tcp.open()  # by the second endpoint
        stranger.close()
    assert heard and all(tcp.secret not in said for said in heard)
    assert [world.rank for world in worlds] == [0, 1]


@pytest.mark.skipif(IS_SANITIZED, reason="a sanitizer does not live without descriptors")
@pytest.mark.parametrize("rank", range(2))
@pytest.mark.parametrize("left", range(2))
def test_without_descriptors_a_job_does_not_start(left: int, rank: int) -> None:
    """A rank needs two descriptors to wait, before it connects to the other.

    It is alone here, as a failing second rank in the same process would free its descriptors.
    """
    tcp = TcpJob(2)
    os.close(free := os.dup(0))  # the lowest free descriptor
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + left, before[1]))
    try:
        with pytest.raises((ValueError, HorovodInternalError)) as caught:
            tcp.open_one(rank)
        assert "Too many open files" in caught.value.facts["why"]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("frame", "code", "facts"),
    [
        (header(9, 0), "frame_wrong", {"ranks": (0,), "frame_kind": 9, "bytes": 0}),
        (header(1, 1 << 40), "frame_wrong", {"frame_kind": 1, "bytes": 1 << 40}),
        (header(2, 100, transfer=0, offset=90), "transfer_of_other_size", {"ranks": (1,), "bytes": 190}),
        (header(2, 1 << 60, transfer=0, offset=1 << 63), "transfer_of_other_size", {"expected": 100}),
    ],
)
def test_a_frame_that_cannot_be_ends_the_job_with_a_reason(
    frame: bytes, code: str, facts: dict[str, Any]
) -> None:
    """Frames of a faulty rank, which knows the secret."""
    tcp = TcpJob(2)
    world, _other = tcp.open()
    room = np.zeros(100, np.uint8)
    ticket = testing.start(world, [], [(1, room.ctypes.data, room.nbytes)])
    with rank_1_says(frame, tcp):
        with refused(HorovodInternalError, code, **facts):
            testing.finish(world, ticket)
        testing.cancel(world)
        del world  # closes its connections
    assert not room.any()


@pytest.mark.parametrize(
    ("lost", "why", "code", "facts"),
    [
        (2, "rank 2: its reason", "lost_says_other", {"ranks": (2,), "by": 1, "who": "rank 2: its reason"}),
        (2, "", "other_heard_nothing", {"ranks": (2,), "by": 1}),
        (-1, "", "peer_gave_up", {"ranks": (1,)}),
    ],
)
def test_a_loss_is_of_the_same_rank_for_whoever_hears_of_it(
    lost: int, why: str, code: str, facts: dict[str, Any]
) -> None:
    """Rank 0 learns it from rank 1, and rank 3 from rank 0."""
    tcp = TcpJob(4)
    worlds = tcp.open()
    said = struct.pack("<i", lost) + why.encode()
    with rank_1_says(header(4, len(said), checksum=testing.crc32c(said)) + said, tcp):
        for rank, asked in ((0, {"code": code, **facts}), (3, {"ranks": facts["ranks"]})):
            room = np.zeros(100, np.uint8)
            with refused(LostRank, **asked) as caught:
                ticket = testing.start(worlds[rank], [], [(2, room.ctypes.data, room.nbytes)])
                testing.finish(worlds[rank], ticket)
            assert lost_ranks(caught.value) == facts["ranks"]
        worlds.clear()


@contextmanager
def rank_1_says(frame: bytes, tcp: TcpJob) -> Iterator[None]:
    """Send a frame to rank 0, on a new connection, until rank 0 closes it."""

    def rank_1() -> None:
        with tcp.connect(0) as connection:
            said = hello(challenge_of(connection), tcp.secret, rank=1, to=0, lane=1, size=tcp.size)
            connection.sendall(said + frame)
            received(connection, ANSWER + 1)

    thread = threading.Thread(target=rank_1, daemon=True)
    thread.start()
    yield
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_an_answer_to_another_question_is_no_error_s_text() -> None:
    """Rank 0 has ranks of two jobs and receives a digest of settings, not an answer about shared memory.
    A bare number must not become the text of an error.
    """

    def misled(connection: socket.socket) -> None:
        (digest,) = texts_of(next_message(connection), 1)
        for said in ([digest, digest], [b"", digest]):
            data = b"".join(struct.pack("<I", len(text)) + text for text in said)
            connection.sendall(header(1, len(data), checksum=testing.crc32c(data)) + data)
        received(connection, 1 << 20)  # until the other closes

    with rank_0_does(misled) as tcp, refused(CannotStart, "out_of_step", ranks=(1,)):
        tcp.open_one(1, tcp_settings(transport="auto", deterministic=True))


def test_a_rank_that_is_lost_before_the_job_began() -> None:
    """The job could not be formed, for a reason with its own class."""
    with rank_0_does(next_message) as tcp, refused(CannotStart, ranks=(0,), cause_class="LostRank") as caught:
        tcp.open_one(1, tcp_settings(transport="auto", deterministic=True))
    assert lost_ranks(caught.value) == (0,) and follows_others(caught.value)
    assert isinstance(caught.value, ValueError) and not isinstance(caught.value, HorovodInternalError)


def test_what_keeps_one_rank_is_said_by_all_with_its_facts() -> None:
    """Both ranks fail here, as they are one process; all report the first rank's failure."""
    tcp = TcpJob(2, hosts=[0, 0])

    def start(rank: int) -> None:
        with refused(CannotStart, "shared_memory_failed", ranks=(0,), why=os.strerror(errno.EFBIG)):
            tcp.open_one(rank, tcp_settings(transport="auto", deterministic=True))

    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        in_threads(2, start)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def rank_0_does(this: Callable[[socket.socket], object]) -> Iterator[TcpJob]:
    """A job of two ranks on one host; the first answers a greeting, does this, and leaves."""
    tcp = TcpJob(2, hosts=[0, 0])
    with socket.create_server(("127.0.0.1", 0)) as server:
        tcp.endpoints[0] = [f"127.0.0.1:{server.getsockname()[1]}"]

        def rank_0() -> None:
            connection, _ = server.accept()
            with connection:
                challenge = MAGIC + secrets.token_bytes(32)
                connection.sendall(challenge)
                connection.sendall(answer(received(connection, HELLO), challenge, tcp.secret))
                this(connection)

        thread = threading.Thread(target=rank_0, daemon=True)
        thread.start()
        yield tcp
        thread.join(LIMIT)
        assert not thread.is_alive()


def next_message(connection: socket.socket) -> bytes:
    """The next message, without signs of life."""
    while True:
        kind, _, length, _, _ = struct.unpack("<2I3Q", received(connection, 32))
        data = received(connection, length)
        if kind == 1:
            return data


def texts_of(data: bytes, count: int) -> list[bytes]:
    texts, at = [], 0
    for _ in range(count):
        (length,) = struct.unpack_from("<I", data, at)
        texts.append(data[at + 4 : at + 4 + length])
        at += 4 + length
    return texts
