"""What is asked of other hosts before a job starts, with a program in ssh's place; and what is remembered."""

# private: _checked_software: hosts with other software than this one

import json
import socket
import stat
import subprocess
import sys
import time
from ipaddress import IPv4Address
from pathlib import Path

import fake_ssh
import pytest
from refusals import refused

from horovod.common import software
from horovod.common.networks import Choice
from horovod.runner import errors, host_agent, launch, preflight, remote_hosts, shell
from horovod.runner.agents.plan import Plan
from horovod.runner.errors import HostsRefused, LaunchError, Unreachable
from horovod.runner.host_cache import LIFETIME, HostCache
from horovod.runner.shell import Ssh
from horovod.runner.agents.supervision import Ending, Launch


@pytest.fixture
def ssh_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file that lists the hosts which ssh was asked for."""
    monkeypatch.setattr(preflight.time, "sleep", lambda _: None)
    return fake_ssh.put_first(tmp_path, monkeypatch)


def refusal(*hosts: str) -> HostsRefused:
    with refused(errors.hosts_refused, asked=len(hosts)) as error:
        remote_hosts.Preparation(Ssh(2222), None).prepare(hosts)
    assert isinstance(error.value, HostsRefused)
    return error.value


def test_hosts_describe_themselves(ssh_log: Path) -> None:
    answers, failures = preflight.describe(["good1", "good2", "slow"], Ssh())
    assert not failures and set(answers) == {"good1", "good2", "slow"}
    assert ssh_log.read_text().split().count("slow") == 2
    described = preflight.description(answers["good1"])
    assert ("lo", "127.0.0.1/8") in [(name, str(address)) for name, address in described.addresses]
    assert (described.reached_from, described.reached_at) == (
        IPv4Address("10.9.0.1"),
        IPv4Address("10.9.0.2"),
    )


def test_every_host_that_fails_is_named_with_the_reason(ssh_log: Path) -> None:
    failures = {
        "gone": errors.unknown_name(),
        "locked": errors.no_login(host="locked"),
        "new": errors.key_unknown(host="new"),
        "down": errors.timed_out(),
        "shut": errors.connection_refused(),
        "odd": errors.unexplained(exit_code=3, said="something odd"),
        "bare": errors.no_python(path=sys.executable),
        "old": errors.no_horovod(path=host_agent.__file__),
        "mute": errors.unexplained(exit_code=0, said="it said nothing"),
    }
    error = refusal("good1", *failures)
    assert error.facts["failures"] == {host: str(why) for host, why in failures.items()}
    assert error.facts["shell"] == "ssh port 2222" and "9 of 10" in str(error)
    assert all(f"{host} ({why})" in str(error) for host, why in failures.items())
    asked = ssh_log.read_text().split()
    assert (asked.count("shut"), asked.count("down"), asked.count("locked")) == (3, 2, 1)
    assert set(refusal("torn").facts["failures"]) == {"torn"} and "Expecting value" in str(refusal("torn"))


def test_reaching_addresses() -> None:
    """Refused is reached: this host has no server on port 1, but it answers."""
    assert host_agent.unreachable(1, 2.0, ["127.0.0.1"]) == []
    assert host_agent.unreachable(1, 0.2, ["255.255.255.255", "127.0.0.1"]) == ["255.255.255.255"]


def test_ssh_is_given_the_port_and_key() -> None:
    command = Ssh(23, "/my key").command("h", ["sh", "-c", "a b"])
    assert command[0] == "ssh" and "BatchMode=yes" in command and "StrictHostKeyChecking=no" not in command
    assert command[-7:] == ["-p", "23", "-i", "/my key", "--", "h", "sh -c 'a b'"]


def test_cached_hosts_are_not_asked_again(tmp_path: Path, ssh_log: Path) -> None:
    cache = HostCache(tmp_path / "cache")
    first = remote_hosts.Preparation(Ssh(), cache).prepare(["good1"])
    assert len(ssh_log.read_text().split()) == 1
    again = remote_hosts.Preparation(Ssh(), cache).prepare(["good1"])
    assert again == first and len(ssh_log.read_text().split()) == 1
    remote_hosts.Preparation(Ssh(23), cache).prepare(["good1"])  # another way to reach it
    remote_hosts.Preparation(Ssh(), None).prepare(["good1"])  # --disable-cache
    assert len(ssh_log.read_text().split()) == 3
    cache.forget(first.cache_keys)
    remote_hosts.Preparation(Ssh(), cache).prepare(["good1"])
    assert len(ssh_log.read_text().split()) == 4


def test_hosts_with_another_build_are_named(ssh_log: Path) -> None:
    prepare = remote_hosts.Preparation(Ssh(), None).prepare
    for name in ("horovod", "core"):
        ours = software.installed()[name]
        differences = f"{name} is {ours} on good1 and this host, 0.1 on other-{name}"
        with refused(errors.different_builds, differences=differences):
            prepare(["good1", f"other-{name}"])


def test_another_torch_or_python_is_warned_of(ssh_log: Path) -> None:
    prepare = remote_hosts.Preparation(Ssh(), None).prepare
    assert prepare(["good1"]).warnings == ()
    said = prepare(["good1", "other-PyTorch", "other-Python"]).warnings[0]
    ours = software.installed()
    for name in ("PyTorch", "Python"):
        assert f"{name} is {ours[name]} on good1 and " in said and f"0.1 on other-{name}" in said
    assert said.endswith(": results may differ with them; install the same on all hosts")


def test_the_cache_hides_no_new_version(
    tmp_path: Path, ssh_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither here nor, once it was asked or a job has failed, there."""
    cache = HostCache(tmp_path / "cache")
    ours = software.installed()["horovod"]

    def prepare() -> int:
        remote_hosts.Preparation(Ssh(), cache).prepare(["other-horovod"])
        return len(ssh_log.read_text().split())

    monkeypatch.setenv("THERE", ours)
    assert (prepare(), prepare()) == (1, 1), "remembered"
    monkeypatch.setattr("horovod.__version__", "9.9")
    differences = f"horovod is {ours} on other-horovod, 9.9 on this host"
    with refused(errors.different_builds, differences=differences):
        prepare()
    monkeypatch.setenv("THERE", "9.9")  # installed there too, a minute later
    assert prepare() == 3
    assert prepare() == 3


def test_a_job_that_failed_has_its_hosts_asked_again(
    tmp_path: Path, ssh_log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps it failed because of what has been installed there since."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for code, asked in ((0, 1), (1, 1), (0, 2), (0, 2)):
        ending = Ending(code, "", None, True, {})
        monkeypatch.setattr(launch, "run", lambda *_, ending=ending: ending)
        assert launch.main(["-np", "1", "-H", "good1", "true"]) == code
        assert len(ssh_log.read_text().split()) == asked


def test_failures_are_not_remembered(tmp_path: Path, ssh_log: Path) -> None:
    for _ in range(2):
        with pytest.raises(LaunchError):
            remote_hosts.Preparation(Ssh(), HostCache(tmp_path / "cache")).prepare(["gone"])
    assert ssh_log.read_text().split() == ["gone", "gone"]


@pytest.mark.parametrize(("np", "begins"), [(2, True), (3, False)])
def test_an_elastic_job_begins_without_hosts_that_cannot_be_reached(
    np: int,
    begins: bool,
    tmp_path: Path,
    ssh_log: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where a script has found slots enough on the others. They are as hosts that fail later."""
    monkeypatch.setenv("HOME", str(tmp_path))
    commands: list[list[str]] = []

    def run(job: Launch, output: object) -> Ending:
        commands.append(list(job.command))
        return Ending(0, "", None, True, {})

    monkeypatch.setattr(launch, "run", run)
    script = "printf 'localhost:1\ngood1:1\ngone:2\nlocked:2\n'"
    code = launch.main(["-np", str(np), "--min-np", "1", "--host-discovery-script", script, "true"])
    failures = {"gone": str(errors.unknown_name()), "locked": str(errors.no_login(host="locked"))}
    said = str(preflight.refusal(failures, 2 if begins else 3, Ssh()))
    heard = capsys.readouterr().err
    assert code == (0 if begins else 2) and f"{'warning: ' * begins}{said}" in heard
    if not begins:
        assert not commands
        return
    plan = Plan.of(commands[0][4])
    assert plan.hosts == (("localhost", 1), ("good1", 1)) and plan.failed == ("gone", "locked")


def test_networks_that_the_user_names(ssh_log: Path) -> None:
    def prepare(*wanted: str) -> Choice:
        return remote_hosts.Preparation(Ssh(), None).prepare(["good1"], wanted).choice

    assert prepare("eth7", "eth8") == Choice(("eth7", "eth8"), ("eth7",), ("eth7", "eth8"), "")
    assert prepare("127.0.0.0/8") == Choice(("127.0.0.0/8",), ("127.0.0.0/8",), ("lo",), "")
    assert prepare("127.0.0.1/8").interfaces == ("lo",)  # an address names its network
    with refused(errors.wrong_value, option="--network-interfaces", value="10.0.0.0/99"):
        prepare("10.0.0.0/99")


def test_the_cache_is_private_and_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "home" / ".horovod"
    cache = HostCache(folder)
    assert cache.find("a") is None
    cache.put({"a": {"x": 1}})
    cache.put({"b": [2]})
    assert (cache.find("a"), cache.find("b")) == ({"x": 1}, [2])
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "hosts.json").stat().st_mode) == 0o600
    assert [path.name for path in folder.iterdir()] == ["hosts.json"]
    now = time.time()
    monkeypatch.setattr("horovod.runner.host_cache.time.time", lambda: now + LIFETIME + 1)
    assert cache.find("a") is None
    cache.put({"c": 3})
    assert list(json.loads((folder / "hosts.json").read_text())) == ["c"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": 1}', '{"a": ["x", 1]}'])
def test_a_damaged_cache_holds_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "hosts.json").write_text(text)
    cache = HostCache(tmp_path)
    assert cache.find("a") is None
    cache.put({"a": 1})
    assert cache.find("a") == 1


def test_a_cache_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    cache = HostCache(tmp_path)
    cache.put({"a": 1})
    (tmp_path / "hosts.json").chmod(0o666)
    assert cache.find("a") is None


def test_where_nothing_can_be_written_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = HostCache(tmp_path / "file" / "folder")
    cache.put({"a": 1})
    assert cache.find("a") is None


def test_a_launcher_without_ranks_may_have_another_pytorch() -> None:
    """A login node's results differ from nobody's; its release and core are still what the hosts have."""
    there, here = ({"software": {"horovod": "1", "core": "a", "PyTorch": torch}} for torch in ("2.13", "2.4"))
    records = {"n1": there, "n2": there, remote_hosts.HERE: here}
    assert remote_hosts._checked_software(records, ["n1", "n2"]) == ""
    told = remote_hosts._checked_software(records, ["n1", remote_hosts.HERE])
    assert "PyTorch is 2.13 on n1, 2.4 on this host" in told


def answer_of(*words: str, given: bytes = b"") -> object:
    """What the agent says on this machine, after what a login script might print."""
    line = [sys.executable, "-I", "-S", host_agent.__file__, *words]
    done = subprocess.run(line, input=given, capture_output=True, timeout=30, check=True)
    return host_agent.answer_in(b"Welcome\nhorovodrun-hos\n" + done.stdout)


def test_the_agent_answers_what_it_is_asked() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert answer_of("port", str(port)) == 0
        assert answer_of("reach", str(port), "5", "127.0.0.1", "127.0.0.2") == []
    assert answer_of("port", str(port)) == port
    assert answer_of("reach", str(port), "5", "127.0.0.1") == []  # a refusal is an answer
    found = answer_of("port", "0")
    assert isinstance(found, int) and found >= 10_000


def test_an_agent_that_is_given_a_payload_keeps_it_as_long_as_it_is_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    line = [sys.executable, "-I", "-S", host_agent.__file__, "hold", "name", "4"]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
        assert agent.stdin is not None and agent.stdout is not None
        agent.stdin.write(b"four")
        agent.stdin.flush()
        answers = [host_agent.answer_in(agent.stdout.readline()) for _ in range(2)]
        assert answers == [None, {"held": "name"}]
        assert (tmp_path / "name" / "payload").read_bytes() == b"four"
        agent.stdin.close()
        assert agent.wait(20) == 0
    assert not (tmp_path / "name").exists()


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", None),
        (b"motd only\n", None),
        (b"x horovodrun-host 1", None),
        (b"\xff\nhorovodrun-host [1]\n", [1]),
        (b'motd\nno newline\nhorovodrun-host {"a": 1}\nbye\n', {"a": 1}),
    ],
)
def test_answers_are_found_among_what_else_is_said(said: bytes, answer: object) -> None:
    assert host_agent.answer_in(said) == answer


@pytest.mark.parametrize("said", [b"horovodrun-host {", b"horovodrun-host " + b"[" * 100_000])
def test_answers_that_are_no_json_are_refused(said: bytes) -> None:
    with pytest.raises(ValueError, match=r"Expecting|nested too deeply"):
        host_agent.answer_in(said)


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
    found = preflight.explained("x", code, said)
    assert (found.code, str(found), found.tries) == (why.code, str(why), tries)


@pytest.mark.parametrize("answer", [-1, 65536, "80", None])
def test_what_is_no_port_is_refused(answer: object) -> None:
    with pytest.raises(ValueError, match="no port"):
        preflight.port_in(answer)


def test_ports_and_addresses_of_answers() -> None:
    assert [preflight.port_in(number) for number in (0, 65535)] == [0, 65535]
    assert preflight.addresses_in(["10.0.0.1"]) == [IPv4Address("10.0.0.1")]
    for answer in ("10.0.0.1", None, ["10.0.0"]):
        with pytest.raises(ValueError, match=r"no list of addresses|Expected 4 octets"):
            preflight.addresses_in(answer)


def test_a_launcher_in_a_slurm_job_asks_by_srun(tmp_path: Path) -> None:
    for name in ("ssh", "srun"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0o755)
    own = {"PATH": str(tmp_path)}
    assert shell.shell_for(own, 23, "key") == Ssh(23, "key")
    by_srun = shell.shell_for({**own, "SLURM_JOB_ID": "1"}, None, None)
    assert str(by_srun) == by_srun.identity() == "srun"
    words = by_srun.command("n1", ["a", "b c"])
    assert words[0] == "srun" and words[-3:] == ["--nodelist=n1", "a", "b c"]
    assert (str(Ssh()), str(Ssh(23))) == ("ssh port 22", "ssh port 23")
    assert Ssh(23, "key").identity() != Ssh(23).identity() != Ssh().identity()
    (tmp_path / "srun").unlink()
    assert isinstance(shell.shell_for({**own, "SLURM_JOB_ID": "1"}, None, None), Ssh)
    (tmp_path / "ssh").unlink()
    with refused(errors.no_ssh):
        shell.shell_for(own, None, None)


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
