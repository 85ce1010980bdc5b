"""Checks of other hosts before a job starts, by a substitute for ssh and by simulated agents."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import busy
import fake_ssh
import pytest
from host_agents import host_agent
from refusals import refused

from horovod.common import software, time_limits
from horovod.common.networks import Choice
from horovod.runner import errors, shell
from horovod.runner.agents import frames, host_facts, reaching
from horovod.runner.agents.driver import Driver, Interrupted
from horovod.runner.agents.preparation import Preparation, Prepared, build_refusal
from horovod.runner.agents.reaching import Ways
from horovod.runner.errors import HostsRefused, Unreachable
from horovod.runner.processes import children
from horovod.runner.shell import Srun, Ssh


@pytest.fixture
def ssh_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that lists the hosts which ssh was asked for."""
    monkeypatch.setattr(time_limits, "AGENT_RETRY", 0.05)
    return fake_ssh.put_first(tmp_path, monkeypatch)


def prepared(*hosts: str, seconds: float = 30.0) -> Prepared:
    ssh = Ssh(2222)
    with Driver(Ways(ssh)) as driver:
        return Preparation(driver, ssh, seconds).prepare(hosts, (), ())


def refusal(*hosts: str, seconds: float = 30.0) -> HostsRefused:
    with refused(errors.hosts_refused, asked=len(hosts)) as error:
        prepared(*hosts, seconds=seconds)
    assert isinstance(error.value, HostsRefused)
    return error.value


def test_hosts_describe_themselves_also_at_the_second_try(ssh_log: Path) -> None:
    found = prepared("good1", "good2", "slow").descriptions
    assert set(found) == {"good1", "good2", "slow"}
    assert ssh_log.read_text().split().count("slow") == 2
    described = found["good1"]
    assert ("lo", "127.0.0.1/8") in [(name, str(address)) for name, address in described.addresses]
    assert (described.reached_from, described.reached_at) == (
        IPv4Address("10.9.0.1"),
        IPv4Address("10.9.0.2"),
    )
    assert not children(), "agents end with their driver"


def test_every_host_that_fails_is_named_with_the_reason(ssh_log: Path) -> None:
    failures = {
        "gone": errors.unknown_name(),
        "locked": errors.no_login(host="locked"),
        "new": errors.key_unknown(host="new"),
        "down": errors.timed_out(),
        "shut": errors.connection_refused(),
        "odd": errors.unexplained(exit_code=3, said="something odd"),
        "bare": errors.no_python(path=sys.executable),
        "old": errors.no_horovod(path=Ways(Ssh()).words("old")[-1].split()[-3]),
        "mute": errors.unexplained(exit_code=0, said="it said nothing"),
    }
    error = refusal("good1", *failures)
    assert error.facts["failures"] == {host: str(why) for host, why in failures.items()}
    assert error.facts["shell"] == "ssh port 2222" and "9 of 10" in str(error)
    assert all(f"{host} ({why})" in str(error) for host, why in failures.items())
    asked = ssh_log.read_text().split()
    assert (asked.count("shut"), asked.count("down"), asked.count("locked")) == (3, 2, 1)


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("torn", "its answer is not understood, no frame begins with "),
        ("early", "its answer is not understood, a frame b'B' before its first word"),
        ("killed", "was killed by signal 9 (SIGKILL)"),
    ],
)
def test_what_is_no_agent_is_refused_with_what_it_did(host: str, why: str, ssh_log: Path) -> None:
    assert why in refusal(host).facts["failures"][host]
    assert ssh_log.read_text().split() == [host]
    busy.until(lambda: not children())


def test_a_login_script_that_reads_what_is_for_the_agent_is_named(ssh_log: Path) -> None:
    why = refusal("good1", "greedy").facts["failures"]
    assert set(why) == {"greedy"} and "it does not begin as it should; likely a login script" in why["greedy"]


def test_a_host_of_which_nothing_is_heard_is_named_in_time(ssh_log: Path) -> None:
    assert refusal("good1", "quiet", seconds=4.0).facts["failures"] == {"quiet": "no answer within 4 s"}
    busy.until(lambda: not children())


def test_a_signal_ends_the_wait_for_hosts(ssh_log: Path) -> None:
    ssh = Ssh()
    with pytest.raises(Interrupted) as told, Driver(Ways(ssh)) as driver:
        os.kill(os.getpid(), signal.SIGTERM)
        Preparation(driver, ssh, 30.0).prepare(["quiet"], (), ())
    assert told.value.args == (signal.SIGTERM,)
    busy.until(lambda: not children())


def test_ssh_is_given_the_port_and_key() -> None:
    command = Ssh(23, "/my key").command("h", ["sh", "-c", "a b"])
    assert command[0] == "ssh" and "BatchMode=yes" in command and "StrictHostKeyChecking=no" not in command
    assert command[-7:] == ["-p", "23", "-i", "/my key", "--", "h", "sh -c 'a b'"]


def test_how_an_agent_is_started() -> None:
    assert Ways().words("localhost")[1:3] == ["-I", "-S"]
    there = Ways(Ssh(2222)).words("b.invalid")
    assert there[0] == "ssh" and there[-2] == "b.invalid" and there[-1].endswith("agents/agent.py ssh facts")
    by_srun = Ways(Srun()).words("b.invalid")
    assert by_srun[0] == "srun" and "--nodelist=b.invalid" in by_srun and by_srun[-1] == "facts"
    assert "ssh" not in by_srun
    ways = Ways(Ssh())
    assert ways.words("localhost")[-1] == "here"
    assert ways.is_here("localhost") and not ways.is_here("b.invalid")


def test_ssh_speaks_english_and_the_ranks_there_hear_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher parses ssh's messages."""
    monkeypatch.setenv("LC_ALL", "de_DE")
    told = Ways(Ssh()).environment("b.invalid")
    assert b"LC_ALL" not in told and told[b"LC_MESSAGES"] == b"C" and told[b"PATH"] == os.environb[b"PATH"]
    assert Ways(Ssh()).environment("localhost") is Ways(Srun()).environment("b.invalid") is os.environb


# a simulated driver


class MadeDriver:
    """Replaces a driver: hosts with these facts and answers; other hosts fail."""

    def __init__(self, facts: Mapping[str, Any], answers: Mapping[str, Any] = {}) -> None:
        self.facts, self.answers = facts, answers
        self.asked: list[tuple[str, Mapping[str, Any]]] = []

    def meet(self, hosts: Sequence[str], within: float) -> tuple[dict[str, Any], dict[str, str]]:
        found = {host: self.facts[host] for host in hosts if host in self.facts}
        return found, {host: "it is down" for host in hosts if host not in found}

    def ask(
        self, questions: Mapping[str, Mapping[str, Any]], within: float
    ) -> tuple[dict[str, Any], dict[str, str]]:
        self.asked += questions.items()
        found = {host: self.answers.get(host, []) for host in questions}
        return found, {host: "it is gone" for host in questions if found[host] == "gone"}


def facts(address: str = "10.0.0.1/24", **other: str) -> dict[str, Any]:
    """Facts of a host with this software, except for `other`."""
    return {
        "host": "x", "addresses": [["eth0", address, 1000], ["lo", "127.0.0.1/8", 0]], "from": "", "at": "",
        "software": {**software.installed(), **other},
    }  # fmt: skip


def preparation_of(driver: MadeDriver, least: int = 99) -> Preparation:
    made: Any = driver
    return Preparation(made, Ssh(), 5.0, lambda failed: len(driver.facts) >= least)


def test_hosts_with_another_build_are_named() -> None:
    for name in ("horovod", "core"):
        ours = software.installed()[name]
        driver = MadeDriver({"a": facts(), "b": facts(**{name: "0.1"})})
        differences = f"{name} is {ours} on this host and a, 0.1 on b"
        with refused(errors.different_builds, differences=differences):
            preparation_of(driver).prepare(["a", "b"], (), ())


def test_a_host_that_comes_later_with_another_build_is_refused() -> None:
    assert build_refusal({"host": "x"}) == "", "of this machine nothing is asked"
    assert build_refusal(facts()) == build_refusal(facts(PyTorch="0.1")) == ""
    assert "core is " in build_refusal(facts(core="0.1"))
    assert "is not understood" in build_refusal({"host": "x", "software": [1]})


def test_another_torch_or_python_is_warned_of() -> None:
    ours = software.installed()
    same = {"a": facts(), "b": facts("10.0.0.2/24")}
    assert preparation_of(MadeDriver(same)).prepare(["a", "b"], (), ()).warnings == ()
    others = {"b": facts("10.0.0.2/24", PyTorch="0.1"), "c": facts("10.0.0.3/24", Python="0.1")}
    (said,) = preparation_of(MadeDriver(same | others)).prepare(["a", "b", "c"], (), ()).warnings
    for name, host in (("PyTorch", "b"), ("Python", "c")):
        assert f"{name} is {ours[name]} on a" in said and f"0.1 on {host}" in said
    assert said.endswith(": results may differ with them; install the same on all hosts")


def test_a_launcher_without_ranks_may_have_another_pytorch() -> None:
    """A login node computes no results that could differ."""
    driver = MadeDriver({"a": facts(PyTorch="2.4"), "b": facts("10.0.0.2/24", PyTorch="2.4")})
    assert preparation_of(driver).prepare(["a", "b"], (), ()).warnings == ()
    said = preparation_of(driver).prepare(["a", "b"], ["b"], ()).warnings[0]
    assert "PyTorch is 2.4 on a, " in said, "the second is this host"


@pytest.mark.parametrize(("least", "begins"), [(2, True), (3, False)])
def test_a_job_may_begin_without_hosts_that_cannot_be_reached(least: int, begins: bool) -> None:
    """They count as hosts that fail later."""
    driver = MadeDriver({"a": facts(), "b": facts("10.0.0.2/24")})
    one = preparation_of(driver, least)
    if not begins:
        with refused(errors.hosts_refused, failures={"gone": "it is down"}, asked=3):
            one.prepare(["a", "gone", "b"], (), ())
        return
    found = one.prepare(["a", "gone", "b"], (), ())
    assert found.missing == ("gone",) and set(found.descriptions) == {"a", "b"}
    assert "gone (it is down); the job begins without, and it is on the blacklist" in found.warnings[0]


@pytest.mark.parametrize(
    "nonsense", [{}, {"addresses": 3}, {"addresses": [["eth0"]]}, {"software": None}, {"at": 5}]
)
def test_facts_that_are_none_are_a_failure_of_that_host(nonsense: dict[str, Any]) -> None:
    told = {"host": "b", **(nonsense and facts()), **nonsense}
    with refused(errors.hosts_refused) as error:
        preparation_of(MadeDriver({"a": facts(), "b": told})).prepare(["a", "b"], (), ())
    assert set(error.value.facts["failures"]) == {"b"}
    assert "is not understood" in error.value.facts["failures"]["b"]


def test_networks_that_the_user_names() -> None:
    def prepare(*wanted: str) -> Choice:
        return preparation_of(MadeDriver({"a": facts()})).prepare(["a"], (), wanted).choice

    assert prepare("eth7", "eth8") == Choice(("eth7", "eth8"), interfaces=("eth7", "eth8"))
    assert prepare("127.0.0.0/8") == Choice(("127.0.0.0/8",), interfaces=("lo",))
    assert prepare("127.0.0.1/8").interfaces == ("lo",), "an address names its network"
    with refused(errors.wrong_value, option="--network-interfaces", value="10.0.0.0/99"):
        prepare("10.0.0.0/99")


@pytest.mark.parametrize("fabrics", [(True, True), (True, False), (False, False), (True, None)])
def test_whether_all_hosts_have_infiniband(fabrics: tuple[bool | None, bool | None]) -> None:
    hosts = {"a": {**facts(), "fabric": fabrics[0]}, "b": {**facts("10.0.0.2/24"), "fabric": fabrics[1]}}
    prepared = preparation_of(MadeDriver(hosts)).prepare(["a", "b"], (), ())
    assert prepared.has_fabric == (fabrics == (True, True))


def test_hosts_look_at_the_ways_to_each_other() -> None:
    two = {"a": facts("10.0.0.1/24"), "b": facts("10.0.0.2/24")}
    driver = MadeDriver(two)
    found = preparation_of(driver).prepare(["a", "b"], (), ())
    assert found.choice.networks == ("10.0.0.0/24",) and found.warnings == ()
    assert {host: question["targets"] for host, question in driver.asked} == {
        "a": ["10.0.0.2"],
        "b": ["10.0.0.1"],
    }
    closed = MadeDriver(two, {"a": ["10.0.0.2"]})
    (said,) = preparation_of(closed).prepare(["a", "b"], (), ()).warnings
    assert "no answer on the way from a to 10.0.0.2 (tried port 22)" in said
    for answer, why in (("gone", "it is gone"), ("10.0.0.1", "no list"), (["10.0.0"], "Expected 4 octets")):
        with refused(errors.hosts_refused) as error:
            preparation_of(MadeDriver(two, {"b": answer})).prepare(["a", "b"], (), ())
        assert set(error.value.facts["failures"]) == {"b"}
        assert why in error.value.facts["failures"]["b"]


@pytest.mark.parametrize("answer", [-1, 65536, "80", None, "gone"])
def test_what_is_no_port_is_refused(answer: object) -> None:
    with refused(errors.hosts_refused) as error:
        preparation_of(MadeDriver({}, {"a": answer})).port("a", 0)
    why = error.value.facts["failures"]["a"]
    assert why == "it is gone" if answer == "gone" else "no port: " in why
    assert preparation_of(MadeDriver({}, {"a": 65535})).port("a", 0) == 65535


# a host's own answers


def test_an_agent_answers_what_it_is_asked() -> None:
    def ask(**question: Any) -> Any:
        host.say(frames.record(frames.QUESTION, question))
        return host.hear(frames.ANSWER)

    with host_agent("facts") as host:
        assert software.checked(host.hear(frames.HELLO)["software"]) == software.checked(software.installed())
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            assert ask(about="port", wanted=port) == {"answer": 0}
            told = ask(about="reach", port=port, seconds=5, targets=["127.0.0.1", "127.0.0.2"])
            assert told == {"answer": []}
        assert ask(about="port", wanted=port) == {"answer": port}
        assert ask(about="port", wanted=0)["answer"] >= 10_000
        assert "no question" in ask(about="nothing")["error"]
        assert "KeyError" in ask(about="port")["error"]


def test_reaching_addresses() -> None:
    """A refused connection counts as reached: this host has no server on port 1, but it answers."""
    assert host_facts.unreachable(1, 2.0, ["127.0.0.1"]) == []
    assert host_facts.unreachable(1, 0.2, ["255.255.255.255", "127.0.0.1"]) == ["255.255.255.255"]


@pytest.mark.parametrize(
    ("code", "said", "why", "tries"),
    [
        (255, "ssh: Could not resolve hostname x: Name or service not known\n", errors.unknown_name(), 1),
        (255, "Connection reset by peer\nbye", errors.connection_closed(), 3),
        (255, "what\nis this \n", errors.unexplained(exit_code=255, said="is this"), 2),
        # the agent's own words, not ssh's
        (1, "Permission denied\n", errors.unexplained(exit_code=1, said="Permission denied"), 1),
        (1, " \n", errors.unexplained(exit_code=1, said="it said nothing"), 1),
        (1, "ModuleNotFoundError: No module named 'psutil'\n", errors.no_psutil(), 1),
    ],
)
def test_why_a_host_cannot_take_part(code: int, said: str, why: Unreachable, tries: int) -> None:
    found = reaching.explained("x", code, said)
    assert (found.code, str(found), found.tries) == (why.code, str(why), tries)


def test_a_launcher_in_a_slurm_job_asks_by_srun(tmp_path: Path) -> None:
    for name in ("ssh", "srun"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    own = {"PATH": str(tmp_path)}
    assert shell.shell_for({"ssh_port": 23, "ssh_identity_file": "key"}, own) == Ssh(23, "key")
    by_srun = shell.shell_for({}, {**own, "SLURM_JOB_ID": "1"})
    assert str(by_srun) == "srun"
    words = by_srun.command("n1", ["a", "b c"])
    assert words[0] == "srun" and words[-3:] == ["--nodelist=n1", "a", "b c"]
    assert (str(Ssh()), str(Ssh(23))) == ("ssh port 22", "ssh port 23")
    (tmp_path / "srun").unlink()
    assert isinstance(shell.shell_for({}, {**own, "SLURM_JOB_ID": "1"}), Ssh)
    (tmp_path / "ssh").unlink()
    with refused(errors.no_ssh):
        shell.shell_for({}, own)


@pytest.mark.parametrize("folder", ["torch-2.4.1+cpu.dist-info", "torch-2.4.1+cpu-py3.11.egg-info"])
def test_torchs_version_is_that_of_its_folder(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("site.getsitepackages", lambda: [str(tmp_path)])
    monkeypatch.setattr("site.getusersitepackages", lambda: str(tmp_path / "none"))
    (tmp_path / "torch_geometric-2.6.dist-info").mkdir()
    assert software.installed()["PyTorch"] == ""
    (tmp_path / folder).mkdir()
    assert software.installed()["PyTorch"] == "2.4.1+cpu"


def test_the_seconds_for_each_way_are_said_to_hosts() -> None:
    driver = MadeDriver({"a": facts(), "b": facts("10.0.0.2/24")})
    preparation_of(driver).prepare(["a", "b"], (), ())
    assert {question["seconds"] for _, question in driver.asked} == {time_limits.REACH}
