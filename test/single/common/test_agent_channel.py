"""A worker's channel to its agent: requests, answers, and which workers have one. The driver is real."""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import MagicMock

import pytest
from refusals import refused

from horovod.common import agent_channel as channels
from horovod.common import errors
from horovod.common.agent_channel import AgentChannel
from horovod.common.agent_messages import VARIABLE, MessageParser, Place, packed
from horovod.common.launched import detect
from horovod.common.rendezvous.places import in_drivers_store, rendezvous_of
from horovod.runner.agents import frames
from horovod.runner.agents.decisions import FixedJob
from horovod.runner.agents.frames import Frame, FrameParser
from horovod.runner.agents.job import Job, Told
from horovod.runner.agents.places import places_of

RANKS = 3


class Launcher:
    """A driver and an agent combined, for workers that are threads."""

    def __init__(self, ranks: int) -> None:
        connections = MagicMock()
        connections.hello.return_value = None
        connections.put = self._put
        told = Told(["true"], b"", b"")
        self._job = Job(FixedJob([("a", ranks)]), told, connections, MagicMock(), MagicMock())
        self._job.begin(0.0)
        self._job.heard("a", Frame(frames.HELLO, b'{"host": "a"}'), 0.0)
        self._lock = threading.Lock()
        pairs = [socket.socketpair() for _ in range(ranks)]
        self._ours = [ours for ours, _ in pairs]
        self.channels = [AgentChannel(theirs) for _, theirs in pairs]
        for number in range(ranks):
            threading.Thread(target=self._serve, args=[number], daemon=True).start()

    def _serve(self, worker: int) -> None:
        parser = MessageParser()
        while data := self._ours[worker].recv(1 << 16):
            for text in parser.feed(data):
                with self._lock:
                    body = worker.to_bytes(4, "big") + text
                    self._job.heard("a", Frame(frames.MESSAGE, body), 0.0)

    def _put(self, host: str, data: bytes) -> None:
        (frame,) = FrameParser(from_agent=False).feed(frames.MAGIC + data)
        if frame.kind == frames.MESSAGE:
            number, message = frame.numbered()
            self._ours[number].sendall(message)

    def say(self, worker: int, data: bytes) -> None:
        self._ours[worker].sendall(data)

    def close(self) -> None:
        for ours in self._ours:
            ours.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    made = Launcher(RANKS)
    yield made
    made.close()


def on_all(launcher: Launcher, work: Callable[[AgentChannel], Any]) -> list[Any]:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(work, launcher.channels, timeout=20))


def test_a_store(launcher: Launcher) -> None:
    one, two, _ = launcher.channels
    assert not one.check(["k"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(two.get, "k")
        one.set("k", b"\0\xff")
        assert waiting.result(timeout=10) == b"\0\xff"
    one.set("text", "ä")
    assert two.get("text") == "ä".encode() and two.check(["k", "text"])
    assert two.delete_key("k") and not two.delete_key("k") and not one.check(["k"])
    large = os.urandom(1 << 20)
    one.set("large", large)
    assert two.get("large") == large


def test_a_place_of_this_worker(launcher: Launcher) -> None:
    assert on_all(launcher, lambda channel: channel.assign()) == places_of([("a", RANKS)])


def test_ranks_meet_by_it_and_meet_again(launcher: Launcher) -> None:
    connected = threading.Barrier(RANKS)

    def meet(channel: AgentChannel) -> list[list[bytes]]:
        met = []
        for topic in ("first", "second"):
            rendezvous = in_drivers_store(channel, [])
            assert (rendezvous.size, channel.generation) == (RANKS, 1)
            met.append(rendezvous.allgather(topic, f"{topic} {rendezvous.rank}".encode()))
            connected.wait(10)
            rendezvous.done()
            connected.wait(10)
        return met

    expected = [[f"{topic} {rank}".encode() for rank in range(RANKS)] for topic in ("first", "second")]
    assert on_all(launcher, meet) == [expected] * RANKS


def test_some_of_them_meet(launcher: Launcher) -> None:
    def meet(channel: AgentChannel) -> list[bytes]:
        mine = channel.assign().rank
        members = [2, 0] if mine != 1 else [1]
        return in_drivers_store(channel, members).allgather("x", b"%d" % mine)

    assert on_all(launcher, meet) == [[b"2", b"0"], [b"1"], [b"2", b"0"]]


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, AgentChannel]]:
    """The agent's end, which does not answer, and a channel."""
    ours, theirs = socket.socketpair()
    yield ours, AgentChannel(theirs)
    ours.close()


def test_who_is_out_is_told_why(ends: tuple[socket.socket, AgentChannel]) -> None:
    """As in elastic jobs; here the answer comes before the question."""
    ours, channel = ends
    ours.sendall(packed({"id": 1, "ok": {"out": "its host is going"}}))
    with refused(errors.out_of_the_job, why="its host is going"):
        channel.assign()


@pytest.mark.parametrize("answer", [None, 3, {"rank": 0}])
def test_an_answer_that_is_none(ends: tuple[socket.socket, AgentChannel], answer: Any) -> None:
    ours, channel = ends
    ours.sendall(packed({"id": 1, "ok": answer}))
    with pytest.raises(ValueError):
        channel.assign()


def test_what_is_refused(launcher: Launcher) -> None:
    with refused(errors.refused, do="set"):
        launcher.channels[0].set(3, b"x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="too long"):
        launcher.channels[0].set("k", bytes(2 << 20))
    launcher.channels[0].set("k", b"it goes on")


def test_news_of_hosts_are_heard_also_those_of_before(launcher: Launcher) -> None:
    heard: list[tuple[float, int]] = []
    for update in (1, 2):
        launcher.say(0, packed({"event": "hosts_updated", "timestamp": 5.5, "update": update}))
    launcher.channels[0].set("k", b"")  # so they have come
    launcher.channels[0].listen(lambda *news: heard.append(news))
    assert heard == [(5.5, 1), (5.5, 2)]
    launcher.say(0, packed({"event": "hosts_updated", "timestamp": 6.5, "update": 3}))
    launcher.channels[0].set("k", b"")
    assert heard[2:] == [(6.5, 3)]


def test_a_listener_that_fails_ends_nothing(launcher: Launcher, caplog: pytest.LogCaptureFixture) -> None:
    def fail(timestamp: float, update: int) -> None:
        raise RuntimeError("no")

    launcher.channels[0].listen(fail)
    launcher.say(0, packed({"event": "hosts_updated", "timestamp": 1.0, "update": 1}))
    launcher.channels[0].set("k", b"")
    assert "what listens to news of hosts has failed" in caplog.text


@pytest.mark.parametrize(
    "last", [b"", b"\xff\xff\xff\xff", b"\0\0\0\2[]", packed({"event": "hosts_updated"})]
)
def test_a_broken_channel_ends_whatever_waits(ends: tuple[socket.socket, AgentChannel], last: bytes) -> None:
    ours, channel = ends
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.get, "never")
        assert ours.recv(4096)
        ours.sendall(last)
        if not last:
            ours.shutdown(socket.SHUT_RDWR)
        with refused(errors.channel_broken):
            waiting.result(timeout=10)
    with pytest.raises(errors.AgentGone):
        channel.check(["k"])


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channels, "_opened", {})


def test_who_has_inherited_a_channel_has_it(nobody: None) -> None:
    ours, theirs = socket.socketpair()
    descriptor = theirs.detach()
    status = os.fstat(descriptor)
    environment = {VARIABLE: f"{descriptor}:{status.st_dev}:{status.st_ino}"}
    channel = channels.agent_channel(environment)
    assert channel is not None and channels.agent_channel(environment) is channel
    channel.lost(3, 1, "no answer")
    (text,) = MessageParser().feed(ours.recv(4096))
    assert json.loads(text) == {"do": "lost", "generation": 3, "rank": 1, "reason": "no answer"}
    pid = os.fork()
    if pid == 0:
        os._exit(0 if channels.agent_channel(environment) is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, "a forked child would take the answers"
    assert not os.get_inheritable(descriptor)
    ours.close()


@pytest.mark.parametrize("text", ["", "x", "1:2", "1:2:3", "99999:1:1", "0:0:0"])
def test_who_has_not_has_none_and_that_is_an_error_of_init(text: str, nobody: None) -> None:
    environment = {VARIABLE: text, "HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"}
    assert channels.agent_channel(environment) is None
    launch = detect(environment)
    with refused(errors.not_inherited, evidence=launch.evidence):
        rendezvous_of(launch, environment, [])


def test_what_a_place_is_named_by() -> None:
    assert Place._fields == (
        *("generation", "rank", "size", "local_rank", "local_size", "cross_rank", "cross_size"),
        "hosts",
    )
