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
from horovod.runner.elastic.blacklist import Blacklist, checked_range
from horovod.runner.elastic.discovery import (
    FixedHosts,
    HostDiscovery,
    HostDiscoveryScript,
    HostManager,
    HostUpdateResult,
    RepeatedDiscovery,
    hosts_from_output,
)
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
    found = HostDiscoveryScript(script(tmp_path, lines), 3).find_available_hosts_and_slots()
    assert list(found.items()) == [("node-2", 4), ("node1", 3), ("10.0.0.7", 12)]


def test_a_script_may_be_a_command_of_a_shell() -> None:
    assert HostDiscoveryScript("echo a:2; echo b", 1).find_available_hosts_and_slots() == {"a": 2, "b": 1}


@pytest.mark.parametrize("slots", ["0", "00"])
def test_a_host_without_slots_is_not_there(slots: str) -> None:
    """As where it is to be left."""
    assert hosts_from_output(f"a:{slots}\nb:2\n", 1, "the script") == {"b": 2}
    assert hosts_from_output(f"a:{slots}\n", 1, "the script") == {}


def test_no_hosts_are_no_error() -> None:
    assert HostDiscoveryScript("true", 1).find_available_hosts_and_slots() == {}


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
        HostDiscoveryScript(command, 1).find_available_hosts_and_slots()
    assert words in str(error.value)


def test_a_script_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    command = f"sleep 60 & echo $$ $! >{pids}; wait"
    began = time.monotonic()
    with refused(errors.script_too_slow, seconds=0.5):
        HostDiscoveryScript(command, 1, timeout=0.5).find_available_hosts_and_slots()
    assert time.monotonic() - began < busy.patience(20)
    left = list(map(int, pids.read_text().split()))
    assert len(left) == 2
    busy.until(lambda: all(map(busy.has_ended, left)), 10)


def test_what_a_script_leaves_running_is_not_waited_for() -> None:
    began = time.monotonic()
    assert HostDiscoveryScript("sleep 60 & echo a", 1).find_available_hosts_and_slots() == {"a": 1}
    assert time.monotonic() - began < busy.patience(20)


def test_a_script_gets_no_input_and_leaks_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert HostDiscoveryScript("cat; echo a", 1).find_available_hosts_and_slots() == {"a": 1}
    assert len(os.listdir("/proc/self/fd")) == before


class Answers(HostDiscovery):
    """One after the other."""

    def __init__(self, *answers: dict[str, int] | Exception) -> None:
        self._answers = iter(answers)

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_failure_of_the_first_time_ends_the_job() -> None:
    said: list[str] = []
    with refused(errors.no_hosts_found, why="no quota"):
        RepeatedDiscovery(Answers(DiscoveryError("no quota")), said.append).find()
    assert said == []


def test_later_failures_are_said_once_a_minute_and_pass() -> None:
    said: list[str] = []
    broken = DiscoveryError("no quota")
    answers = Answers({"a": 1}, broken, broken, OSError("soon"), OSError("no disk"), {"a": 2})
    times = iter([100.0, 100.0 + 1, 100.0 + 59, 100.0 + 60])
    discovery = RepeatedDiscovery(answers, said.append, lambda: next(times))
    assert [discovery.find() for _ in range(6)] == [{"a": 1}, None, None, None, None, {"a": 2}]
    assert said == [
        "hosts stay as they are, and are looked for again: no quota",
        "hosts stay as they are, and are looked for again: no disk",
        "host discovery works again",
    ]


def test_the_manager_says_what_has_changed() -> None:
    hosts = FixedHosts({"a": 2})
    manager = HostManager(hosts)
    changes = []
    for found in ({"a": 2}, {"a": 2}, {"a": 2, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 3}, {"c": 1}, {}):
        hosts.set(found)
        changes.append(manager.update_available_hosts())
    result = HostUpdateResult
    assert changes == [
        *(result.added, result.no_update, result.added, result.removed, result.added),
        *(result.mixed, result.removed),
    ]
    assert (int(result.added), int(result.removed), int(result.mixed)) == (1, 2, 3)


def test_the_oldest_hosts_come_first() -> None:
    hosts = FixedHosts({"c": 1, "a": 1})
    manager = HostManager(hosts)
    manager.update_available_hosts()
    hosts.set({"a": 2, "b": 1, "c": 1})
    manager.update_available_hosts()
    assert manager.current_hosts.host_assignment_order == ("c", "a", "b")
    assert manager.current_hosts.count_available_slots() == 4
    assert manager.current_hosts.get_slots("a") == 2 and manager.current_hosts.get_slots("x") == 0
    hosts.set({"a": 2, "b": 1})
    manager.update_available_hosts()
    hosts.set({"c": 1, "a": 2, "b": 1})  # it comes back as the youngest
    manager.update_available_hosts()
    assert manager.current_hosts.host_assignment_order == ("a", "b", "c")
    assert HostManager.order_available_hosts({"a", "b"}, ["c", "b"]) == ["b", "a"]


def test_a_failed_host_stays_away_without_a_cooldown() -> None:
    clock = Clock()
    manager = HostManager(FixedHosts({"a": 2, "b": 1}), clock=clock)
    manager.update_available_hosts()
    assert manager.blacklist("a") == float("inf") and not manager.can_return()
    assert manager.is_blacklisted("a") and not manager.is_blacklisted("b")
    clock.now += 1e9
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    assert manager.current_hosts.available_hosts == {"b"}
    assert manager.current_hosts.count_available_slots() == 1
    assert manager.current_hosts.host_slots == {"a": 2, "b": 1}


def test_a_failed_host_comes_back_after_its_cooldown() -> None:
    clock = Clock()
    manager = HostManager(FixedHosts({"a": 2}), (10, 3600), clock=clock, chance=lambda: 0.5)
    manager.update_available_hosts()
    assert manager.blacklist("a") == pytest.approx(10.5) and manager.can_return()
    clock.now += 10.4
    assert manager.is_blacklisted("a") and manager.update_available_hosts() == HostUpdateResult.no_update
    clock.now += 0.2
    assert not manager.is_blacklisted("a")
    assert manager.update_available_hosts() == HostUpdateResult.added
    assert manager.update_available_hosts() == HostUpdateResult.no_update
    assert manager.current_hosts.available_hosts == {"a"}


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


@pytest.mark.parametrize("wrong", [(0, 5), (5, 4), (1, 3601), (float("nan"), 5), (1,), (1, 2, 3)])
def test_a_wrong_range_is_refused(wrong: tuple[float, float]) -> None:
    row = errors.cooldown_bounds if len(wrong) == 2 else errors.cooldown_no_pair
    with refused(row):
        checked_range(wrong)
    with refused(row):
        HostManager(FixedHosts({}), wrong)
