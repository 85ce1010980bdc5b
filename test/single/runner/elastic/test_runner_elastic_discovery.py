"""Hosts of elastic jobs: the script's output and failures, their order, the blacklist."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import busy
import pytest
from refusals import refused

from horovod.runner import errors
from horovod.runner.elastic.discovery import RepeatedDiscovery, hosts_from_output, hosts_of_script
from horovod.runner.elastic.settings import Limits, checked_range
from horovod.runner.elastic.slots import Blacklist, Slots
from horovod.runner.errors import DiscoveryError


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def script(folder: Path, text: str) -> str:
    path = folder / "hosts.sh"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_output_of_a_script(tmp_path: Path) -> None:
    lines = "echo node-2:4; echo; echo '# none'; echo '  node1  # spare'; echo 10.0.0.7:12"
    found = hosts_of_script(script(tmp_path, lines), 3)
    assert list(found.items()) == [("node-2", 4), ("node1", 3), ("10.0.0.7", 12)]


def test_a_script_may_be_a_command_of_a_shell() -> None:
    assert hosts_of_script("echo a:2; echo b", 1) == {"a": 2, "b": 1}


@pytest.mark.parametrize("slots", ["0", "00"])
def test_a_host_without_slots_is_not_there(slots: str) -> None:
    """0 slots mean that the host is not usable."""
    assert hosts_from_output(f"a:{slots}\nb:2\n", 1, "the script") == {"b": 2}
    assert hosts_from_output(f"a:{slots}\n", 1, "the script") == {}


def test_no_hosts_are_no_error() -> None:
    assert hosts_of_script("true", 1) == {}


@pytest.mark.parametrize(
    ("output", "line", "because"),
    [
        *(("a:2\nb:x\n", 2, "host_slots"), ("a:-1", 1, "host_slots"), ("a:", 1, "host_slots")),
        *(("a b:0", 1, "host_name"), ("a\n\n-oProxyCommand=x", 3, "host_name")),
        *(("a slots=2", 1, "host_name"), ("x" * 300, 1, "host_name")),
        *(("a:0\na:1", 2, "host_twice"), ("a:1\nb\na:2", 3, "host_twice")),
    ],
)
def test_a_wrong_line_is_named(output: str, line: int, because: str) -> None:
    with refused(errors.script_line, line=line, because=because) as error:
        hosts_from_output(output, 1, "the script")
    assert str(error.value).startswith(f"the script, line {line} ('{output.splitlines()[line - 1][:80]}")


@pytest.mark.parametrize(
    ("command", "code", "facts", "words"),
    [
        ("echo a:1; echo no quota >&2; exit 3", "script_failed", {"exit_code": 3}, "said: no quota"),
        ("kill -9 $$", "script_failed", {"exit_code": -9, "said": ""}, "signal 9"),
        ("/nowhere/hosts.sh", "script_failed", {"exit_code": 127}, "/nowhere/hosts.sh"),
        ("yes", "script_too_much", {"most": 1}, "yes"),
        ("a\0", "script_not_run", {}, "null byte"),
    ],
)
def test_a_script_that_fails(command: str, code: str, facts: dict[str, object], words: str) -> None:
    with refused(DiscoveryError, code, **facts) as error:
        hosts_of_script(command, 1)
    assert words in str(error.value)


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 60 & echo $$ $! >{pids}; wait"
    began = time.monotonic()
    with refused(errors.script_too_slow, seconds=0.5):
        hosts_of_script(command, 1, timeout=0.5)
    assert time.monotonic() - began < busy.patience(20)
    left = list(map(int, pids.read_text().split()))
    assert len(left) == 2
    busy.until(lambda: all(map(busy.has_ended, left)), 10)


def test_what_a_script_leaves_running_is_not_waited_for() -> None:
    began = time.monotonic()
    assert hosts_of_script("sleep 60 & echo a", 1) == {"a": 1}
    assert time.monotonic() - began < busy.patience(20)


def test_a_script_gets_no_input_and_leaks_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert hosts_of_script("cat; echo a", 1) == {"a": 1}
    assert len(os.listdir("/proc/self/fd")) == before


def test_later_failures_are_said_once_a_minute_and_pass() -> None:
    said: list[str] = []
    broken = DiscoveryError("no quota")
    answers: list[dict[str, int] | DiscoveryError] = [{"a": 1}, broken, broken]
    answers += [DiscoveryError("soon"), DiscoveryError("no disk"), {"a": 2}]
    times = iter([100.0, 100.0 + 1, 100.0 + 59, 100.0 + 60])

    def find() -> dict[str, int]:
        answer = answers.pop(0)
        if isinstance(answer, DiscoveryError):
            raise answer
        return answer

    discovery = RepeatedDiscovery(find, said.append, lambda: next(times))
    assert [discovery.find() for _ in range(6)] == [{"a": 1}, None, None, None, None, {"a": 2}]
    assert said == [
        "hosts stay as they are, and are looked for again: no quota",
        "hosts stay as they are, and are looked for again: no disk",
        "host discovery works again",
    ]


def slots_of(
    hosts: dict[str, int], clock: Clock | None = None, cooldown: tuple[int, int] | None = None
) -> Slots:
    return Slots(Limits(np=1, min_np=1, max_np=None, cooldown_range=cooldown), hosts, clock or Clock(), ())


def test_the_oldest_hosts_come_first() -> None:
    slots = slots_of({"c": 1, "a": 1})
    slots.find({"a": 2, "b": 1, "c": 1})
    assert list(slots.hosts().items()) == [("c", 1), ("a", 2), ("b", 1)] and slots.count() == 4
    slots.find({"a": 2, "b": 1})
    slots.find({"c": 1, "a": 2, "b": 1})  # it comes back as the youngest
    assert list(slots.hosts()) == ["a", "b", "c"]


def test_a_failed_host_stays_away_without_a_cooldown() -> None:
    clock = Clock()
    slots = slots_of({"a": 2, "b": 1}, clock)
    slots.begin()
    assert slots.lose("a") == "host a is on the blacklist"
    clock.now += 1e9
    assert slots.hosts() == {"b": 1} and slots.count() == slots.possible() == 1


def test_a_failed_host_comes_back_after_its_cooldown() -> None:
    clock = Clock()
    slots = slots_of({"a": 2}, clock, (10, 3600))
    slots.begin()
    assert slots.lose("a") in ("host a is on the blacklist for 10 s", "host a is on the blacklist for 11 s")
    clock.now += 9.9
    assert slots.hosts() == {} and slots.possible() == 2
    clock.now += 1.2
    assert slots.hosts() == {"a": 2}


@pytest.mark.parametrize("chance", [lambda: 0.0, lambda: 0.999])
def test_cooldowns_double_up_to_the_highest(chance: Callable[[], float]) -> None:
    clock = Clock()
    blacklist: Blacklist[str] = Blacklist((3, 40), clock, chance)
    seconds = []
    for _ in range(6):
        seconds.append(blacklist.add("a"))
        assert blacklist.add("a") == pytest.approx(seconds[-1]), "workers of one host fail together"
        clock.now += seconds[-1]
        assert "a" not in blacklist
    for got, lowest in zip(seconds, [3, 6, 12, 24, 40, 40], strict=True):
        assert lowest <= got <= min(40, lowest * 1.1)


def test_a_host_that_fails_for_ever_is_away_for_an_hour_at_most() -> None:
    clock = Clock()
    blacklist: Blacklist[str] = Blacklist((1, 3600), clock)
    for _ in range(2000):
        last = blacklist.add("a")
        clock.now += last
    assert last == 3600


def test_slots_of_a_host_are_away_one_by_one() -> None:
    clock = Clock()
    blacklist: Blacklist[tuple[str, int]] = Blacklist((10, 300), clock, lambda: 0.0)
    assert blacklist.add(("a", 1)) == 10
    clock.now += 6
    assert blacklist.add(("a", 2)) == 10 and blacklist.add(("b", 1)) == 10
    assert ("a", 0) not in blacklist and ("a", 1) in blacklist
    clock.now += 5
    assert ("a", 1) not in blacklist and ("a", 2) in blacklist
    assert blacklist.add(("a", 1)) == 20, "it has failed before"


@pytest.mark.parametrize("wrong", [(0, 5), (5, 4), (1, 3601), (1,), (1, 2, 3)])
def test_a_wrong_range_is_refused(wrong: tuple[int, ...]) -> None:
    with refused(errors.cooldown_bounds if len(wrong) == 2 else errors.cooldown_no_pair):
        checked_range(wrong)
