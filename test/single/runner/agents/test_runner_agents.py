"""A job of agents without a process: frames, the store, places and decisions. Also a real agent."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, call

import pytest
from host_agents import host_agent
from refusals import refused

from horovod.common import time_limits
from horovod.common.agent_messages import MessageParser, Place, object_in, packed
from horovod.common.networks import Choice
from horovod.runner import by_agents, errors, job_hosts, launchers, starting
from horovod.runner.agents import frames
from horovod.runner.agents.decisions import (
    Action,
    Decisions,
    EndJob,
    FixedJob,
    Leave,
    Notify,
    Publish,
    Say,
    Start,
    Stop,
)
from horovod.runner.agents.frames import Frame, FrameParser, Order
from horovod.runner.agents.job import Job, KeyValueStore, Told
from horovod.runner.agents.outcome import End
from horovod.runner.agents.places import places_of, variables_of
from horovod.runner.agents.streams import Outbox, is_cut, is_unanswered
from horovod.runner.hosts import Host
from horovod.runner.job_hosts import JobHosts
from horovod.runner.payload import fresh_name
from horovod.runner.shell import Ssh

# frames


FRAMES = [
    frames.record(frames.QUESTION, {"about": "port", "wanted": 0}),
    frames.frame(frames.ENVIRONMENT, b"a" * 100_000),
    Order(3, ["sh", "-c", "\udc80"], {"A": "b"}, has_input=True).frame(),
    frames.record(frames.STOP, {"worker": 3, "signal": 15}),
    frames.numbered(frames.INPUT, 3),
    frames.numbered(frames.CREDIT, 1 << 20),
]


def fed(parser: Any, data: bytes, step: int = 1 << 20) -> list[Any]:
    """The parser's results for a stream in pieces of `step` bytes."""
    pieces = (data[at : at + step] for at in range(0, len(data), step))
    return [found for piece in pieces for found in parser.feed(piece)]


def of_driver(data: bytes) -> Frame:
    """The one frame of a driver that this is."""
    (frame,) = fed(FrameParser(from_agent=False), frames.MAGIC + data)
    assert isinstance(frame, Frame)
    return frame


@pytest.mark.parametrize("step", [1, 2, 7, 4096, 1 << 20])
def test_frames_are_found_however_a_stream_is_cut(step: int) -> None:
    found = fed(FrameParser(from_agent=False), frames.MAGIC + b"".join(FRAMES), step)
    assert [frames.frame(*one) for one in found] == FRAMES
    assert Order.of(found[2]) == (3, ["sh", "-c", "\udc80"], {"A": "b"}, True)
    assert found[3].record(worker=int, signal=int) == {"worker": 3, "signal": 15}
    assert (found[4].numbered(), found[5].numbered()) == ((3, b""), (1 << 20, b""))


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_what_a_login_script_says_before_an_agent_is_left_aside(step: int) -> None:
    data = b"welcome\nhorovodrun agent\n" * 3 + frames.MAGIC + frames.frame(frames.BEAT)
    assert fed(FrameParser(from_agent=True), data, step) == [Frame(frames.BEAT, b"")]


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0?",
        b"\0\0\0\0" + frames.HELLO,  # an agent's, not a driver's
        (frames.MOST_BYTES + 1).to_bytes(4, "big") + frames.INPUT,
    ],
)
def test_what_is_no_frame_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match="no frame begins with"):
        FrameParser(from_agent=False).feed(frames.MAGIC + data)


@pytest.mark.parametrize("data", [b"Last login: Mon", frames.MAGIC[1:], frames.frame(frames.BEAT)])
def test_a_driver_begins_as_it_should(data: bytes) -> None:
    """A driver's stream begins with its frames; if another program reads their beginning, it is invalid."""
    with pytest.raises(ValueError, match="does not begin as it should"):
        FrameParser(from_agent=False).feed(data)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"[" * 100_000,
        b'{"worker": "1"}',
        b'{"worker": true, "signal": 1}',
        b'{"worker": 1}',
    ],
)
def test_a_frame_that_is_no_record_is_an_error(body: bytes) -> None:
    with pytest.raises(ValueError):
        Frame(frames.STOP, body).record(worker=int, signal=int)


def test_an_order_without_a_command_and_a_frame_without_a_number_are_errors() -> None:
    for body in ({"command": []}, {"command": [1]}, {"command": ["a"], "variables": {"a": 1}}):
        told = {"worker": 1, "variables": {}, "has_input": False, **body}
        with pytest.raises(ValueError):
            Order.of(Frame(frames.START, json.dumps(told).encode()))
    with pytest.raises(ValueError, match="without a number"):
        Frame(frames.INPUT, b"\0\0").numbered()
    with pytest.raises(ValueError, match="too long"):
        frames.frame(frames.WROTE, bytes(frames.MOST_BYTES + 1))


def test_messages_are_found_however_a_stream_is_cut() -> None:
    said = [{"id": 1, "do": "get", "key": "k"}, {}, {"x": "y" * 5000}]
    parser = MessageParser()
    assert list(map(object_in, fed(parser, b"".join(map(packed, said)), 1))) == said
    with pytest.raises(ValueError, match="is announced"):
        parser.feed(b"\x7f\0\0\0")
    with pytest.raises(ValueError, match="too long"):
        packed({"x": "y" * (3 << 20)})
    for text in (b"[]", b"", b"[" * 100_000):
        with pytest.raises(ValueError):
            object_in(text)


def test_an_outbox_keeps_what_there_is_no_room_for_and_nothing_once_nobody_reads() -> None:
    reader, writer = os.pipe()
    box = Outbox(writer)
    box.put(bytes(1 << 20))
    box.flush()
    assert 0 < box.size < 1 << 20 and not box.is_broken
    os.close(reader)
    box.flush()
    assert (box.size, box.descriptor, box.is_broken) == (0, -1, True)
    box.put(b"more")
    assert box.size == 0


# the store


def test_who_waits_for_a_key_gets_it_when_it_is_set() -> None:
    store: KeyValueStore[str] = KeyValueStore()
    assert store.get("k", "one") is None and store.get("k", "two") is None and store.get("l", "one") is None
    assert store.set("k", "v") == ["one", "two"]
    assert store.get("k", "three") == "v" and store.set("k", "w") == []
    assert store.check(["k"]) and not store.check(["k", "l"])
    store.forget(lambda waiter: waiter == "one")
    assert store.set("l", "x") == []
    assert store.delete("k") and not store.delete("k") and not store.check(["k"])


def test_a_store_is_bounded() -> None:
    store: KeyValueStore[int] = KeyValueStore(most_bytes=10)
    store.set("k", "12345678")
    with refused(errors.store_full, key="l", bytes=9):
        store.set("l", "12")
    store.set("k", "1234")
    store.set("l", "123")
    store.delete("k")
    store.set("l", "123456789")


# places


def test_places_of_unlike_hosts() -> None:
    places = places_of([("a", 2), ("b", 1), ("c", 3)])
    seen = [(p.rank, p.local_rank, p.local_size, p.cross_rank, p.cross_size) for p in places]
    assert seen == [
        (0, 0, 2, 0, 3), (1, 1, 2, 0, 2),
        (2, 0, 1, 1, 3),
        (3, 0, 3, 2, 3), (4, 1, 3, 1, 2), (5, 2, 3, 0, 1),
    ]  # fmt: skip
    assert all(p.size == 6 and p.hosts == ("a", "a", "b", "c", "c", "c") for p in places)
    assert [p.local_rank for p in places_of([("a", 1), ("b", 1), ("a", 1)])] == [0, 0, 1], "named again"
    assert variables_of(places[4], "c") == {
        "HOROVOD_RANK": "4", "HOROVOD_SIZE": "6", "HOROVOD_LOCAL_RANK": "1", "HOROVOD_LOCAL_SIZE": "3",
        "HOROVOD_CROSS_RANK": "1", "HOROVOD_CROSS_SIZE": "2", "HOROVOD_HOSTNAME": "c",
    }  # fmt: skip


def test_a_place_on_its_way() -> None:
    place = places_of([("a", 2), ("b", 1)])[1]
    assert Place.of(json.loads(json.dumps(place.record()))) == place
    good = place.record()
    for wrong in (
        {"rank": 3},
        {"rank": "1"},
        {"rank": True},
        {"hosts": ["a"]},
        {"hosts": "abc"},
        {"size": -3},
    ):
        with pytest.raises(ValueError):
            Place.of({**good, **wrong})
    for nothing in (None, [], {}):
        with pytest.raises(ValueError):
            Place.of(nothing)


# a job


class Elastic(Decisions):
    """Decisions of an elastic job, which the test makes."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.next: list[Action] = []

    def _answer(self, *event: Any) -> list[Action]:
        self.heard.append(event)
        actions, self.next = self.next, []
        return actions

    def begin(self) -> list[Action]:
        return self._answer("begin")

    def worker_started(self, worker: int) -> list[Action]:
        return self._answer("started", worker)

    def worker_asks(self, worker: int, after: int) -> list[Action]:
        return self._answer("asks", worker, after)

    def worker_raised(self, worker: int) -> list[Action]:
        return self._answer("raised", worker)

    def worker_accused(self, by: int, generation: int, rank: int, reason: str) -> list[Action]:
        return self._answer("accused", by, generation, rank, reason)

    def worker_ended(self, worker: int, end: End) -> list[Action]:
        return self._answer("ended", worker, end)

    def hosts_found(self, hosts: Mapping[str, int]) -> list[Action]:
        return self._answer("hosts", hosts)

    def host_lost(self, host: str, reason: str) -> list[Action]:
        return self._answer("lost", host)

    def tick(self) -> list[Action]:
        return self._answer("tick") if self.next else []


EFFECTS = ("begin", "put", "end", "drop", "show", "take", "take_value", "label", "say", "end_elastic")


class Driver:
    """A job on simulated hosts. The test acts as agents and workers, and usually makes the decisions.

    Effects are the job's calls of connections, supervision and writer, as `call.put(..)`.
    """

    def __init__(self, decisions: FixedJob | None = None, is_elastic: bool = False) -> None:
        self.decides = Elastic()
        self.hands = MagicMock()
        self.hands.hello.return_value = None
        told = Told(["python", "train.py"], b"", b"")
        self.job = Job(decisions or self.decides, told, self.hands, self.hands, self.hands, is_elastic)
        self.now = 100.0

    def begin(self, *actions: Action) -> list[Any]:
        self.decides.next = list(actions)
        self.job.begin(self.now)
        return self.effects()

    def decide(self, *actions: Action) -> list[Any]:
        self.decides.next = list(actions)
        self.job.tick(self.now)
        return self.effects()

    def effects(self) -> list[Any]:
        done = [each for each in self.hands.method_calls if each[0] in EFFECTS]
        self.hands.reset_mock()
        return done

    def hear(self, agent: str, kind: bytes, **record: Any) -> list[Any]:
        self.job.heard(agent, Frame(kind, json.dumps(record).encode()), self.now)
        return self.effects()

    def ask(self, host: str, worker: int, **message: Any) -> list[tuple[int, dict[str, Any]]]:
        """Let workers ask; return the answers by worker."""
        body = worker.to_bytes(4, "big") + json.dumps(message).encode()
        self.job.heard(host, Frame(frames.MESSAGE, body), self.now)
        return answers(self.effects())

    def end(self, worker: int, host: str, status: int) -> list[Any]:
        return self.hear(host, frames.ENDED, worker=worker, status=status)


def answers(effects: list[Any]) -> list[tuple[int, dict[str, Any]]]:
    found = []
    for effect in effects:
        number, text = of_driver(effect.args[1]).numbered()
        (message,) = MessageParser().feed(text)
        found.append((number, object_in(message)))
    return found


def orders(effects: list[Any], kind: bytes) -> list[tuple[str, dict[str, Any]]]:
    """The frames of this kind, with their agents."""
    parsed = [(each.args[0], of_driver(each.args[1])) for each in effects if each[0] == "put"]
    return [(host, json.loads(frame.body)) for host, frame in parsed if frame.kind == kind]


def reports(effects: list[Any]) -> list[tuple[int, str]]:
    return [each.args for each in effects if each[0] == "take"]


def labels(effects: list[Any]) -> list[tuple[int, str]]:
    return [each.args for each in effects if each[0] == "label"]


def two_hosts() -> Driver:
    driver = Driver(FixedJob([("a", 1), ("b", 2)]))
    driver.begin()
    for host in "ab":
        driver.hear(host, frames.HELLO, host=f"node-{host}")
    return driver


def test_the_start_of_a_fixed_job() -> None:
    effects = Driver(FixedJob([("a", 1), ("b", 2)])).begin()
    assert [each for each in effects if each[0] == "begin"] == [call.begin("a"), call.begin("b")]
    started = orders(effects, frames.START)
    assert [(host, told["worker"], told["has_input"]) for host, told in started] == [
        ("a", 0, True), ("b", 1, False), ("b", 2, False),
    ]  # fmt: skip
    assert started[2][1]["command"] == ["python", "train.py"]
    assert started[2][1]["variables"]["HOROVOD_LOCAL_RANK"] == "1"


def test_a_worker_learns_its_place_at_once_and_again() -> None:
    driver = two_hosts()
    for after in (0, 1):
        ((number, answer),) = driver.ask("b", 2, id=7, do="assign", after=after)
        assert (number, answer["id"]) == (2, 7)
        assert Place.of(answer["ok"]) == places_of([("a", 1), ("b", 2)])[2]


def test_workers_meet_in_the_store() -> None:
    driver = two_hosts()
    assert driver.ask("b", 1, id=1, do="get", key="k") == []
    assert driver.ask("a", 0, id=1, do="check", keys=["k"]) == [(0, {"id": 1, "ok": False})]
    assert driver.ask("a", 0, id=2, do="set", key="k", value="dg==") == [
        (0, {"id": 2, "ok": None}),
        (1, {"id": 1, "ok": "dg=="}),
    ]
    assert driver.ask("b", 2, id=9, do="get", key="k") == [(2, {"id": 9, "ok": "dg=="})]
    assert driver.ask("b", 2, id=10, do="delete", key="k") == [(2, {"id": 10, "ok": True})]
    assert driver.ask("b", 2, id=11, do="delete", key="k") == [(2, {"id": 11, "ok": False})]


@pytest.mark.parametrize(
    "message",
    [{}, {"do": "dance"}, {"do": "set", "key": 1, "value": ""}, {"do": "get"}, {"do": "check", "keys": 3},
     {"do": "assign", "after": None}, {"do": "lost"}],
)  # fmt: skip
def test_what_is_no_request_gets_an_error_and_the_job_goes_on(message: dict[str, Any]) -> None:
    driver = two_hosts()
    ((number, answer),) = driver.ask("a", 0, id=4, **message)
    assert (number, answer["id"]) == (0, 4) and answer["error"]
    assert driver.ask("a", 0, id=5, do="check", keys=[]) == [(0, {"id": 5, "ok": True})]


def test_who_has_ended_waits_no_more() -> None:
    driver = two_hosts()
    driver.ask("b", 1, id=1, do="get", key="k")
    driver.end(1, "b", 0)
    assert driver.ask("a", 0, id=2, do="set", key="k", value="") == [(0, {"id": 2, "ok": None})]


def test_a_job_ends_when_all_have_ended() -> None:
    driver = two_hosts()
    assert driver.end(0, "a", 0) == [] and driver.end(2, "b", 0) == []
    assert driver.end(1, "b", 0) == [call.end_elastic(""), call.end("a"), call.end("b")]
    driver.job.lose("a", "")
    assert driver.job.exit_code is None
    driver.job.lose("b", "")
    assert driver.effects() == [] and driver.job.exit_code == 0


def test_a_failure_is_left_to_horovodrun() -> None:
    """The driver has its report, and waits for the others' before it ends the job."""
    driver = two_hosts()
    assert driver.end(1, "b", 3 << 8) == []
    driver.job.signalled(signal.SIGTERM, driver.now)
    told = orders(driver.effects(), frames.STOP)
    assert told == [("a", {"worker": 0, "signal": 15}), ("b", {"worker": 2, "signal": 15})]
    driver.job.signalled(signal.SIGTERM, driver.now)
    assert driver.effects() == [], "once is enough"
    driver.end(0, "a", 0)
    assert driver.end(2, "b", 9) == [call.end("a"), call.end("b")], "told, so it is not reported"


def test_a_wrapper_that_was_killed_is_reported_and_ends_the_job() -> None:
    driver = two_hosts()
    effects = driver.end(1, "b", signal.SIGKILL)
    assert reports(effects) == [(1, "unreported 9")]
    assert [told["worker"] for _, told in orders(effects, frames.STOP)] == [0, 2]
    driver.end(0, "a", 143 << 8)
    driver.end(2, "b", 143 << 8)
    for host in "ab":
        driver.job.lose(host, "")
    assert driver.job.exit_code == 137


def test_a_host_that_is_lost_is_reported_and_ends_the_job() -> None:
    driver = two_hosts()
    driver.job.lose("b", "its agent is gone")
    effects = driver.effects()
    assert reports(effects) == [(1, "lost node-b")]
    assert call.say("b: its agent is gone") in effects
    assert orders(effects, frames.STOP) == [("a", {"worker": 0, "signal": 15})]
    assert driver.end(0, "a", 15 << 8) == [call.end_elastic(""), call.end("a")]
    driver.job.lose("a", "")
    assert driver.effects() == [] and driver.job.exit_code == 1


def test_a_host_without_a_sign_of_life_is_lost_but_not_for_our_own_pause() -> None:
    driver = two_hosts()
    for now in range(100, 200):
        driver.now = float(now)
        driver.hear("a", frames.BEAT)
        driver.job.tick(driver.now)
        if effects := driver.effects():
            break
    assert call.drop("b") in effects and reports(effects) == [(1, "lost node-b")]
    assert driver.now == 100 + time_limits.HOST_SILENCE + 1
    paused = two_hosts()
    for now in (100.0, 101.0, 150.0, 151.0):
        paused.job.tick(now)
    assert paused.effects() == []


def test_whoever_does_not_end_is_given_up() -> None:
    driver = two_hosts()
    driver.job.signalled(signal.SIGINT, driver.now)
    assert [told["signal"] for _, told in orders(driver.effects(), frames.STOP)] == [2, 2, 2]
    driver.job.tick(driver.now + time_limits.JOB_END - 0.1)
    assert driver.job.exit_code is None
    driver.job.tick(driver.now + time_limits.JOB_END + 0.1)
    assert driver.effects() == [] and driver.job.exit_code == 130


def test_what_a_worker_writes_is_credited_to_its_host_when_it_is_whole_records() -> None:
    driver, whole = two_hosts(), frames.frame(frames.OUTPUT, b"words")
    for part, found in ((whole[:7], []), (whole[7:], [Frame(frames.OUTPUT, b"words")])):
        driver.job.heard("b", Frame(frames.WROTE, (2).to_bytes(4, "big") + part), driver.now)
        assert driver.effects() == [call.show(2, found, "b", len(part))]
    nonsense = Frame(frames.WROTE, (2).to_bytes(4, "big") + b"no record")
    with pytest.raises(ValueError, match="no frame begins with"):
        driver.job.heard("b", nonsense, driver.now)


def test_of_input_that_a_command_takes_only_rank_0s_counts() -> None:
    driver = two_hosts()
    driver.hear("a", frames.TOOK, worker=0, taken=5)
    assert driver.job.input_taken == 5
    driver.hear("a", frames.TOOK, worker=0, taken=-1)
    driver.hear("b", frames.TOOK, worker=1, taken=5)
    assert driver.job.input_taken == -1


def test_input_is_for_the_first_rank() -> None:
    driver = two_hosts()
    assert driver.job.input_host() == "a"
    driver.job.take_input(b"abc")
    frame = of_driver(driver.effects()[0].args[1])
    assert (frame.kind, frame.numbered()) == (frames.INPUT, (0, b"abc"))
    driver.end(0, "a", 0)
    driver.job.take_input(b"abc")
    assert driver.job.input_host() is None and driver.effects() == []


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (frames.ENDED, b'{"worker": 0, "status": 0}'),  # of another host's
        (frames.ENDED, b'{"worker": 9, "status": 0}'),
        (frames.ENDED, b'{"worker": 1}'),
        (frames.MESSAGE, b"\0\0\0\0{}"),
        (frames.MESSAGE, b"\0"),
        (frames.WROTE, b""),
        (frames.HELLO, b"{}"),
        (frames.STARTED, b'{"worker": 0}'),
    ],
)
def test_what_no_agent_says_is_an_error(kind: bytes, body: bytes) -> None:
    driver = two_hosts()
    with pytest.raises(ValueError):
        driver.job.heard("b", Frame(kind, body), driver.now)


def test_an_agent_keeps_the_function_that_workers_call(tmp_path: Path) -> None:
    """A host that the launcher has not reached by ssh before may have come later."""
    name, data = fresh_name(), os.urandom(3 << 20)
    variables = {b"HOROVOD_RUN_PAYLOAD": name.encode(), b"TMPDIR": bytes(tmp_path)}
    folder = Path(tempfile.gettempdir()) / name
    told = [
        frames.frame(frames.ENVIRONMENT, frames.packed_environment(variables)),
        frames.in_parts(frames.PAYLOAD, data),
        Order(0, ["sh", "-c", f"sha256sum {folder}/payload"], {}).frame(),
    ]
    with host_agent() as host:
        host.say(*told)
        host.hear(frames.ENDED)
        assert (folder / "payload").read_bytes() == data
    output = b"".join(each.numbered()[1] for each in host.heard if each.kind == frames.WROTE)
    assert output.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert not folder.exists(), "it goes with the agent"


def test_workers_come_and_go_as_decided() -> None:
    one, (first, second) = places_of([("a", 1)])[0], places_of([("a", 1), ("b", 1)], generation=2)
    driver = Driver()
    driver.begin(Start(10, "a", one))
    driver.hear("a", frames.HELLO, host="a")
    driver.hear("a", frames.STARTED, worker=10, pid=1)
    assert driver.decides.heard[-1] == ("started", 10)
    assert driver.ask("a", 10, id=1, do="assign", after=0) == []
    assert answers(driver.decide(Publish(1, {10: one}))) == [(10, {"id": 1, "ok": one.record()})]
    assert driver.ask("a", 10, id=2, do="assign", after=1) == [], "generation 1 is none after 1"
    effects = driver.decide(Start(11, "b", second), Notify([10], 5.5, 1), Publish(2, {10: first, 11: second}))
    assert call.begin("b") in effects and orders(effects, frames.START)[0][1]["worker"] == 11
    told = [each for each in effects if each[0] == "put" and each.args[1][4:5] == frames.MESSAGE]
    assert answers(told) == [
        (10, {"event": "hosts_updated", "timestamp": 5.5, "update": 1}),
        (10, {"id": 2, "ok": first.record()}),
    ]
    assert driver.ask("b", 11, id=1, do="assign", after=0)[0][1]["ok"]["rank"] == 1, "published before"
    driver.ask("a", 10, do="lost", generation=2, rank=1, reason="no\nanswer")
    assert driver.decides.heard[-1] == ("accused", 10, 2, 1, "no answer")
    driver.ask("b", 11, id=2, do="assign", after=2)
    effects = driver.decide(Publish(3, {10: one}, out={11: "its host is going"}), Stop(11), Say("fewer"))
    assert answers(effects[:1]) == [(11, {"id": 2, "ok": {"out": "its host is going"}})]
    assert orders(effects, frames.STOP) == [("b", {"worker": 11, "signal": 15})]
    assert call.say("fewer") in effects
    driver.end(11, "b", 15)
    assert driver.decides.heard[-1] == ("ended", 11, End(signal_number=15))
    effects = driver.decide(EndJob(4, "enough"))
    assert orders(effects, frames.STOP) == [("a", {"worker": 10, "signal": 15})]
    assert call.end_elastic("enough") in effects, "for horovodrun to say it last"
    driver.decides.next = [Start(12, "a", one)]
    assert driver.end(10, "a", 0) == [call.end("a"), call.end("b")], "nobody starts any more"


def test_why_a_membership_was_made_and_a_worker_is_stopped_is_said() -> None:
    driver = met()
    second = places_of([("a", 1)], generation=2)
    goes_on = Publish(2, {1: second[0]}, "the job goes on")
    effects = driver.decide(Stop(2, "rank 1 is stopped"), Stop(1), goes_on)
    shown = [each.args[0] for each in effects if each[0] == "say"]
    assert shown == ["rank 1 is stopped", "the job goes on"]


def test_output_of_each_worker_has_a_label_of_its_own() -> None:
    """Also if two live workers began as the same rank; the end of each output is reported."""
    places = places_of([("a", 1), ("b", 1)])
    driver = Driver(is_elastic=True)
    begun = driver.begin(Start(0, "a", places[0]), Start(1, "b", places[1]))
    assert labels(begun) == [(0, "0"), (1, "1")]
    assert [told["variables"]["HOROVOD_WORKER"] for _, told in orders(begun, frames.START)] == ["0", "1"]
    driver.hear("a", frames.HELLO, host="a")
    driver.decides.next = [Start(2, "b", places[1])]
    effects = driver.end(0, "a", 9)
    assert (reports(effects), labels(effects)) == ([(0, "unreported 9")], [(0, ""), (2, "1.2")])
    driver.decides.next = [Start(3, "a", places[1])]
    driver.hear("b", frames.HELLO, host="b")
    driver.job.lose("b", "cut")
    effects = driver.effects()
    assert (reports(effects), labels(effects)) == ([(1, "lost b")], [(1, ""), (2, ""), (3, "1.3")])


@pytest.mark.parametrize(
    ("sent", "status", "is_said"),
    [([], 9, False), ([b"x"], 9, True), ([b"x"], 0, False), ([b"x"], 3 << 8, True), ([b"x", b""], 9, False)],
)
def test_input_that_was_lost_with_the_first_rank_0_is_said(
    sent: list[bytes], status: int, is_said: bool
) -> None:
    """No other worker gets the rest, as the amount that the first has read is unknown."""
    places = places_of([("a", 1), ("b", 1)])
    driver = Driver(is_elastic=True)
    driver.begin(Start(0, "a", places[0]), Start(1, "b", places[1]))
    driver.hear("a", frames.HELLO, host="a")
    for data in sent:
        driver.job.take_input(data)
    driver.decides.next = [Start(2, "b", places_of([("b", 1)])[0])]
    effects = driver.end(0, "a", status)
    text = "no rank reads the rest of standard input: the first rank 0 had it, which is lost"
    assert (call.say(text) in effects) == is_said
    assert not orders(effects, frames.START)[0][1]["has_input"]
    assert driver.job.input_host() is None


def met(hosts: Sequence[tuple[str, int]] = (("a", 1), ("b", 1))) -> Driver:
    """Workers 1, 2, ... of generation 1, one on each host, that have asked and have their places."""
    driver, places = Driver(), places_of(hosts)
    driver.begin(*(Start(number, place.hosts[place.rank], place) for number, place in enumerate(places, 1)))
    for number, place in enumerate(places, 1):
        driver.hear(place.hosts[place.rank], frames.HELLO, host=place.hosts[place.rank])
        driver.ask(place.hosts[place.rank], number, id=1, do="assign", after=0)
    driver.decide(Publish(1, dict(enumerate(places, 1))))
    return driver


def test_who_meets_the_others_of_a_worker_that_is_gone_is_told_so() -> None:
    driver = met([("a", 1), ("b", 1), ("c", 1)])
    assert driver.ask("a", 1, id=2, do="get", key="hello/2") == []
    told = answers([each for each in driver.end(3, "c", 9) if each[0] == "put"])
    assert told == [(1, {"id": 2, "error": "a worker of this generation has ended; ask for the next one"})]
    assert driver.decides.heard[-1] == ("ended", 3, End(signal_number=9))
    (_, refused) = driver.ask("b", 2, id=2, do="set", key="hello/1", value="")[0]
    assert "has ended; ask for the next one" in refused["error"], "also who comes later"
    assert driver.ask("b", 2, id=3, do="assign", after=1) == []
    second = places_of([("a", 1), ("b", 1)], generation=2)
    driver.decide(Publish(2, {1: second[0], 2: second[1]}))
    assert driver.ask("b", 2, id=4, do="set", key="hello/1", value="YQ==") == [(2, {"id": 4, "ok": None})]
    assert driver.ask("b", 2, id=5, do="check", keys=["hello/1"]) == [(2, {"id": 5, "ok": True})]


def test_what_an_earlier_generation_said_is_forgotten() -> None:
    driver = met()
    driver.ask("a", 1, id=2, do="set", key="card", value="YQ==")
    second = places_of([("a", 1), ("b", 1)], generation=2)
    driver.decide(Publish(2, {1: second[0], 2: second[1]}))
    assert driver.ask("a", 1, id=3, do="check", keys=["card"]) == [(1, {"id": 3, "ok": False})]


def test_an_exception_of_the_script_is_known_when_it_ends() -> None:
    driver = met()
    driver.ask("a", 1, do="raised")
    assert driver.decides.heard[-1] == ("raised", 1)
    driver.end(1, "a", 1 << 8)
    assert driver.decides.heard[-1] == ("ended", 1, End(code=1, raised=True))


def test_hosts_that_are_found_and_workers_that_are_out() -> None:
    driver = met()
    driver.ask("b", 2, id=2, do="assign", after=1)
    driver.decides.next = [Leave(2, "its host is gone")]
    driver.job.hosts_found({"a": 1})
    assert driver.decides.heard[-1] == ("hosts", {"a": 1})
    assert answers(driver.effects()) == [(2, {"id": 2, "ok": {"out": "its host is gone"}})]
    assert driver.decide(Leave(1, "it does not ask")) == [], "it is told when it asks"


# the connection of ssh, and which way it goes


TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100000A:0016 0200000A:C001 01 00000000:00000000 00:00000000 00000000     0        0 77 1 0 20 4 30
   1: 0100000A:0016 0200000A:C002 01 00000010:00000000 01:00000000 00000006     0        0 78 1 0 20 4 30
   2: 0100000A:0016 0300000A:C003 06 00000000:00000000 00:00000000 00000006     0        0 79 1 0 20 4 30
"""


def test_the_connection_of_ssh_is_found() -> None:
    assert not is_unanswered(TABLE, "10.0.0.2 49153 10.0.0.1 22")
    assert is_unanswered(TABLE, "10.0.0.2 49154 10.0.0.1 22")
    assert not is_unanswered(TABLE, "10.0.0.3 49155 10.0.0.1 22"), "it is closing"
    for none in ("10.0.0.9 49154 10.0.0.1 22", "10.0.0.2 49154 10.0.0.1", "", "x y z 1", "10.0.0.2 a b c"):
        assert not is_unanswered(TABLE, none)
    mapped = TABLE.replace("0200000A", "0000000000000000FFFF00000200000A")
    assert is_unanswered(mapped, "10.0.0.2 49154 10.0.0.1 22"), "sshd listens by IPv6, too"
    assert not is_cut("")


@pytest.mark.parametrize("wanted", [["nosuch0"], ["nosuch0", "203.0.113.0/24"], ["10.0.0.0/99"]])
def test_interfaces_that_are_not_there_are_named(wanted: list[str]) -> None:
    """Also if all ranks are on this host, which needs no network."""
    row = errors.wrong_value if "99" in wanted[0] else errors.no_such_network
    with refused(row, value=",".join(wanted)) as error:
        job_hosts.refuse_absent(wanted)
    assert "lo (127.0.0.1)" in str(error.value) or "99" in wanted[0]
    for there in (["lo"], ["nosuch0", "lo"], ["127.0.0.0/8"]):
        job_hosts.refuse_absent(there)


@pytest.mark.parametrize("values", [{}, {"launcher": "tcp"}, {"use_gloo": True}, {"np": 2, "min_np": 1}])
def test_agents_start_ranks_unless_an_mpi_is_asked_for(
    values: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise errors.no_mpi(folders=[])

    values = {**values, "hosts": "a:1,b:1"}
    monkeypatch.setattr(launchers, "installed_mpirun", missing)
    assert not isinstance(starting.way_of(values, ["true"]), starting.ByMpirun)
    for asked, row in (
        ({"launcher": "mpi"}, errors.no_mpi),
        ({"use_mpi": True}, errors.no_mpi),
        ({"launcher": "mpi", "use_gloo": True}, errors.launchers_contradict),
        ({"launcher": "mpi", "np": 2, "min_np": 1, "hosts": "a:1,b:1"}, errors.mpi_not_elastic),
    ):
        with refused(row):
            starting.way_of(asked)
    monkeypatch.setattr(launchers, "installed_mpirun", lambda: "/mpi/bin/mpirun")
    monkeypatch.setattr(launchers, "installed_flavour", lambda mpirun: "Open MPI 5")
    for asked in ({"launcher": "mpi"}, {"use_mpi": True}):
        assert starting.way_of(asked) == starting.ByMpirun("/mpi/bin/mpirun", "Open MPI 5")
    assert not isinstance(starting.way_of(values), starting.ByMpirun), "also where there is an MPI"


@pytest.mark.parametrize("option", ["mpi_args", "binding_args"])
def test_what_is_for_mpirun_is_refused_by_agents(option: str) -> None:
    with refused(errors.option_of_mpirun, option=f"--{option.replace('_', '-')}"):
        by_agents.run(None, {"np": 1, "start_timeout": 30, option: "-x A"}, ["true"], {})


def test_what_ranks_of_agents_inherit_and_are_told() -> None:
    mine = {
        "OMPI_COMM_WORLD_RANK": "1",
        "PMIX_RANK": "1",
        "HOROVOD_JOINED_BY": "1 x",
        "HOROVOD_RANK": "3",
        "HOROVOD_ELASTIC_RESTART": "1",  # a shell's error: jobs of this package do not request it
        "A": "b",
    }
    assert by_agents.inherited(mine) == {"HOROVOD_RANK": "3", "A": "b"}
    assert by_agents.inherited({**mine, "HOROVOD_AGENT": "5:6:7"}) == {"A": "b"}
    hosts = JobHosts(2, (Host("192.0.2.1"), Host("192.0.2.2")), Ssh())
    choice, values = Choice(("10.0.0.0/8", "eth1")), {"start_timeout": 40}

    def told(**given: str) -> dict[str, str]:
        return by_agents.rank_environment(None, values, hosts, choice, given)

    assert told()["HOROVOD_START_TIMEOUT"] == "40"
    assert told()["HOROVOD_TCP_INTERFACES"] == "10.0.0.0/8,eth1" and len(told()["HOROVOD_SECRET"]) == 64
    assert told()["HOROVOD_SECRET"] != told()["HOROVOD_SECRET"]
    given = {"HOROVOD_SECRET": "s" * 16, "HOROVOD_TCP_INTERFACES": "wg0", "HOROVOD_START_TIMEOUT": "40"}
    assert {**given, **told(**given)} == told(**given)
