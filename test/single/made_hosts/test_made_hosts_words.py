"""Output and errors of made hosts before any host exists, which requires neither root nor a network."""

# private: _is_left_over: a process of another machine's hosts

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from horovod.common.sentences import Sentence
from horovod.made_hosts import __main__ as by_hand
from horovod.made_hosts import cluster, errors, network, system
from horovod.made_hosts.cluster import MadeHosts
from horovod.made_hosts.errors import HostsError


@pytest.mark.parametrize(
    ("argument", "value", "row"),
    [
        *(("name", text, errors.no_name) for text in ("a b", "a-b", "../a")),
        ("prefix", "h-", errors.no_name),
        *(("rtt", text, errors.no_round_trip) for text in ("20", "11s", "0ms")),
        *(("count", count, errors.no_such_count) for count in (0, 251)),
    ],
)
def test_what_cannot_be_made_is_refused(argument: str, value: Any, row: Sentence[Any]) -> None:
    with refused(row, got=value):
        MadeHosts(**{"count": 2, argument: value})


def test_names_and_addresses() -> None:
    made = MadeHosts(250, name="lab", prefix="node")
    assert (made.names[0], made.names[-1], len(made.names)) == ("node1", "node250", 250)
    assert made.addresses["node250"] == "10.77.0.250"
    assert MadeHosts(1).cluster != MadeHosts(1).cluster


def test_commands_that_fail_say_what_they_said() -> None:
    assert system.run("sh", "-c", "echo done") == "done\n"
    with refused(errors.failed, command="sh -c echo why >&2; exit 3", exit_code=3, said="why"):
        system.run("sh", "-c", "echo why >&2; exit 3")
    with refused(errors.failed, exit_code=1, said="no message"):
        system.run("sh", "-c", "exit 1")


def test_commands_that_hang_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "LIMIT", 0.2)
    with refused(errors.too_slow, command="sleep 60", limit=0.2):
        system.run("sleep", "60")


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(system, "path_of", lambda program: None if program in ("tc", "sshd") else "/bin/true")
    with refused(errors.not_installed, program="tc", package="iproute2"):
        system.run("tc", "qdisc")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert system.why_not() == "not installed: tc, sshd (apt-get install iproute2 openssh-server)"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert system.why_not() == "making hosts needs root"
    with refused(errors.not_possible):
        MadeHosts(1).up()


def test_clusters_that_nobody_has_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "FOLDER", tmp_path)
    with refused(errors.no_cluster, got="lab"):
        MadeHosts.open("lab")
    folder = tmp_path / "lab"
    folder.mkdir()
    assert cluster._is_left_over(folder)
    mine = [os.getpid(), system_start(os.getpid())]
    for owner, is_left in ((None, False), (mine, False), ([os.getpid(), "1"], True)):
        record = {"count": 3, "rate": "1gbit", "rtt": "none", "prefix": "n", "owner": owner}
        (folder / "cluster.json").write_text(json.dumps(record))
        assert cluster._is_left_over(folder) == is_left
    opened = MadeHosts.open("lab")
    assert (opened.names, opened.rate_limit) == (["n1", "n2", "n3"], "1gbit")
    (folder / "cluster.json").write_text("{")
    assert cluster._is_left_over(folder)


def system_start(process: int) -> str:
    return str(cluster.start_time(process))


class Hosts:
    """Replaces a cluster and records its calls."""

    asked: list[Any]
    rtt = "none"

    def __init__(self, count: int, **options: Any) -> None:
        self.asked.append((count, options))

    @classmethod
    def open(cls, name: str) -> Hosts:
        return cls(0, name=name)

    def status(self) -> dict[str, str]:
        return {"h1": "10.77.0.1 up"}

    def switch_seconds(self) -> float:
        return 1.25

    def bytes(self, host: str) -> tuple[int, int]:
        return (3, 4) if host == "h1" else (0, 0)

    def __getattr__(self, action: str) -> Any:
        def done(*words: str) -> None:
            self.asked.append((action, *words))

        return done


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (
            "up 2 --rate 1gbit --rtt 5ms",
            [(2, {"rate": "1gbit", "rtt": "5ms", "name": "hosts", "keep": True}), ("up",)],
        ),
        ("--name lab down", [(1, {"name": "lab"}), ("down",)]),
        ("rate 10mbit", [(0, {"name": "hosts"}), ("rate", "10mbit")]),
        ("cut h2", [(0, {"name": "hosts"}), ("cut", "h2")]),
        ("boot h2", [(0, {"name": "hosts"}), ("boot", "h2")]),
    ],
)
def test_words_by_hand(words: str, asked: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_hand, "MadeHosts", Hosts)
    monkeypatch.setattr(Hosts, "asked", [], raising=False)
    assert by_hand.main(words.split()) == 0
    assert Hosts.asked == asked


def test_answers_by_hand(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Hosts, "asked", [], raising=False)
    monkeypatch.setattr(by_hand, "MadeHosts", Hosts)
    assert by_hand.main(["status"]) == by_hand.main(["bytes", "h1"]) == 0
    assert capsys.readouterr().out == "h1 10.77.0.1 up\n3 4\n"
    monkeypatch.setattr(Hosts, "rtt", "20ms")
    assert by_hand.main(["status"]) == 0
    assert capsys.readouterr().out.splitlines()[1] == "switch: round trips of 20ms, 1.2 s of processor"
    monkeypatch.setattr(by_hand, "MadeHosts", MadeHosts)
    assert by_hand.main(["--name", "nobodys", "status"]) == 1
    assert capsys.readouterr().err == f"made_hosts: {errors.no_cluster(got='nobodys')}\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "the following arguments are required: ACTION"),
        ("--name a", "the following arguments are required: ACTION"),
        ("up", "the following arguments are required: count"),
        ("up two", "argument count: invalid int value: 'two'"),
        ("kill", "the following arguments are required: host"),
        ("exec", "the following arguments are required: host"),
        ("rate", "the following arguments are required: rate"),
        ("reboot h1", "invalid choice: 'reboot'"),
    ],
)
def test_what_is_missing_or_wrong_by_hand(
    words: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes with the usage, before any action."""
    monkeypatch.setattr(by_hand, "MadeHosts", None)
    with pytest.raises(SystemExit) as ended:
        by_hand.main(words.split())
    shown = capsys.readouterr().err
    assert ended.value.code == 2 and shown.startswith("usage: python -m horovod.made_hosts")
    assert said in shown


def test_a_network_that_somebody_else_removes_meanwhile_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*words: str) -> str:
        asked.append(words)
        if others_are_first:
            (tmp_path / words[-1]).unlink()
        raise HostsError("it is busy")

    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(network, "NETWORK_NAMESPACES", tmp_path)
    monkeypatch.setattr(network, "run", fails)
    network.remove("h1")
    assert asked == []
    for others_are_first in (True, False):
        (tmp_path / "h1").touch()
        with pytest.raises(HostsError, match="busy") if not others_are_first else contextlib.nullcontext():
            network.remove("h1")
    assert asked == [("ip", "netns", "del", "h1")] * 2
