"""Hosts, and the command line for each MPI: pure functions, no processes."""

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import busy
import psutil
import pytest
from refusals import refused

from horovod.common.networks import Choice
from horovod.runner import by_mpirun, errors, hosts, job_hosts, launchers
from horovod.runner.agents.supervision import Ending
from horovod.runner.errors import LaunchError
from horovod.runner.hosts import Host
from horovod.runner.launchers import Job
from horovod.runner.shell import Ssh
from horovod.runner.starting import ByMpirun

LOCAL = Job("mpirun", 4, (Host("localhost", 4),), ("python", "t.py"), ("PATH",))
REMOTE = replace(LOCAL, hosts=(Host("a", 2), Host("b", 2)))
BYTES = "--mca pml ob1 --mca btl self,sm,tcp --mca osc ^ucx"
UNBOUND = "--bind-to none --map-by slot"


def line(job: Job, flavour: str) -> str:
    return " ".join(launchers.command(job, flavour))


def test_open_mpi_5_on_this_host() -> None:
    assert line(LOCAL, "Open MPI 5") == (
        f"mpirun --allow-run-as-root -np 4 -H localhost:4 {UNBOUND} {BYTES} --output tag python t.py"
    )


def test_open_mpi_5_on_several_hosts() -> None:
    job = replace(REMOTE, network_interfaces=("eth0", "eth1"), ssh_port=2222, ssh_identity_file="/k/id")
    assert line(job, "Open MPI 5") == (
        f"mpirun --allow-run-as-root -np 4 -H a:2,b:2 {UNBOUND} {BYTES} --output tag "
        "--prtemca plm_ssh_args -o BatchMode=yes -o ConnectTimeout=10 -p 2222 -i /k/id "
        "--prtemca oob_tcp_keepalive_time 2 --prtemca oob_tcp_keepalive_intvl 1 "
        "--prtemca oob_tcp_keepalive_probes 3 "
        "--mca btl_tcp_if_include eth0,eth1 -x PATH python t.py"
    )


def test_open_mpi_5_variations() -> None:
    one_each = replace(REMOTE, ranks=2, hosts=(Host("a"), Host("b")))
    assert "--mca btl_tcp_links 2" in line(one_each, "Open MPI 5")
    assert "btl_tcp_links" not in line(REMOTE, "Open MPI 5")
    alone = replace(LOCAL, memory=True)
    assert "--mca btl self,sm --mca osc" in line(alone, "Open MPI 5")
    assert "--mca btl self,vader python" in line(alone, "Open MPI 4")
    assert "ob1" not in line(replace(LOCAL, fabric=True), "Open MPI 5")
    assert "ob1" in line(replace(LOCAL, fabric=True, tcp=True), "Open MPI 5")
    bound = line(replace(LOCAL, binding=("--bind-to", "core"), more_arguments=("--tag", "x")), "Open MPI 5")
    assert UNBOUND not in bound and "--bind-to core" in bound
    assert bound.endswith("--tag x python t.py")
    many = replace(REMOTE, hosts=tuple(Host(f"h{i}") for i in range(64)), ranks=64)
    assert "plm_ssh_no_tree_spawn 1 --prtemca plm_ssh_num_concurrent 64" in line(many, "Open MPI 5")


@pytest.mark.parametrize(("flavour", "shell"), [("Open MPI 5", "ssh"), ("Open MPI 4", "rsh")])
def test_many_hosts_are_asked_at_once_and_by_mpirun_itself(flavour: str, shell: str) -> None:
    """For few hosts Open MPI's default suffices: 128 at once, and each of them may start others."""
    for number in (2, 63, 64, 65, 300):
        job = replace(REMOTE, hosts=tuple(Host(f"h{i}") for i in range(number)), ranks=number)
        words = launchers.command(job, flavour)
        assert (f"plm_{shell}_no_tree_spawn" in words) == (number >= 64)
        if number >= 64:
            assert words[words.index(f"plm_{shell}_num_concurrent") + 1] == str(number)


def test_open_mpi_4_has_other_names() -> None:
    assert line(LOCAL, "Open MPI 4") == (
        f"mpirun --allow-run-as-root -np 4 -H localhost:4 {UNBOUND} --tag-output "
        "--mca pml ob1 --mca btl self,vader,tcp python t.py"
    )
    remote = line(replace(REMOTE, network_interfaces=("eth0",)), "Open MPI 4")
    assert "prte" not in remote and "--mca oob_tcp_keepalive_time 2" in remote and "-x PATH" in remote
    assert "--mca plm_rsh_args -o BatchMode=yes" in remote and "--mca btl_tcp_if_include eth0" in remote


def test_spectrum_mpi_keeps_its_own_transport() -> None:
    text = line(LOCAL, "Spectrum MPI")
    assert "-bind-to socket -map-by socket -rank-by core" in text and "ob1" not in text
    assert "-tcp" in line(replace(LOCAL, tcp=True), "Spectrum MPI").split() and "-tcp" not in text.split()


def test_hydra_takes_none_of_open_mpis_settings() -> None:
    for flavour in ("MPICH", "Intel MPI"):
        assert line(LOCAL, flavour) == "mpirun -np 4 -prepend-rank python t.py"
    assert line(REMOTE, "MPICH") == "mpirun -np 4 -prepend-rank -hosts a:2,b:2 python t.py"
    assert line(replace(REMOTE, network_interfaces=("eth0",), ssh_port=22), "Intel MPI") == (
        "mpirun -np 4 -prepend-rank -ppn 2 -hosts a,b -bootstrap=ssh "
        "-bootstrap-exec-args -o BatchMode=yes -o ConnectTimeout=10 -p 22 -iface eth0 python t.py"
    )
    assert "-iface eth0" in line(replace(REMOTE, network_interfaces=("eth0",)), "MPICH")


def test_lines_begin_with_the_rank_and_files_and_times_are_the_mpis_own() -> None:
    both = replace(LOCAL, output_folder="/logs", timestamps=True)
    assert "--output tag,timestamp,dir=/logs python" in line(both, "Open MPI 5")
    for flavour in ("Open MPI 4", "Spectrum MPI"):
        assert "--tag-output --timestamp-output --output-filename /logs" in line(both, flavour)
    for flavour in ("MPICH", "Intel MPI"):
        said = line(replace(LOCAL, output_folder="/logs"), flavour)
        assert "-prepend-rank -outfile-pattern /logs/rank.%r.stdout -errfile-pattern /logs/rank.%r" in said


@pytest.mark.parametrize(
    ("flavour", "changes", "error"),
    [
        ("MPICH", {"ssh_port": 22}, errors.mpich_takes_no_ssh()),
        ("MPICH", {"network_interfaces": ("a", "b")}, errors.one_interface(interfaces=["a", "b"])),
        ("MPICH", {"tcp": True}, errors.no_tcp_option()),
        ("MPICH", {"timestamps": True}, errors.no_timestamps()),
        ("Intel MPI", {"timestamps": True}, errors.no_timestamps()),
        ("Intel MPI", {"ranks": 3, "hosts": (Host("a", 2), Host("b"))}, errors.uneven_hosts(hosts="a:2,b:1")),
        ("Open MPI 5", {"ssh_identity_file": "/my key"}, errors.torn_identity_file(path="/my key")),
    ],
)
def test_what_an_mpi_cannot_do_is_refused(flavour: str, changes: dict[str, Any], error: LaunchError) -> None:
    with refused(type(error), error.code, **error.facts):
        launchers.command(replace(REMOTE, **changes), flavour)


@pytest.mark.parametrize(
    "text, flavour",
    [
        ("mpirun (Open MPI) 5.0.11\n\nReport bugs to https://www.open-mpi.org", "Open MPI 5"),
        ("mpirun (Open MPI) 4.1.8", "Open MPI 4"),
        ("mpirun (OpenRTE) 4.1.4", "Open MPI 4"),
        ("mpirun (IBM Spectrum MPI) 10.4.0.3 (Open MPI)", "Spectrum MPI"),
        ("HYDRA build details:\n    Version: 5.0.2", "MPICH"),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.18.1 Build 20260626", "Intel MPI"),
        ("mpirun, something else 1.0", ""),
        ("", ""),
    ],
)
def test_flavours_are_told_by_their_version(text: str, flavour: str) -> None:
    assert launchers.flavour_of(text) == flavour


def test_an_unknown_mpirun_is_refused(tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text("#!/bin/sh\necho Strange MPI 7\n")
    mpirun.chmod(0o755)
    with refused(errors.mpirun_unknown, path=str(mpirun), said="Strange MPI 7"):
        launchers.installed_flavour(str(mpirun))


def test_hosts_from_text_and_file(tmp_path: Path) -> None:
    assert hosts.from_text("a:2, b.example.org,c-1:16") == [
        Host("a", 2),
        Host("b.example.org"),
        Host("c-1", 16),
    ]
    path = tmp_path / "hosts"
    path.write_text("# our hosts\na slots=2\n\n b   slots = 3 # new\nc\n")
    assert hosts.from_file(str(path)) == [Host("a", 2), Host("b", 3), Host("c")]


@pytest.mark.parametrize(
    "text", ["", "a:0", "a:x", "a:-1", "a:", "-oProxyCommand=x:1", "a b", "a;ls", "a:1,a:2", "a,,b"]
)
def test_wrong_hosts_are_refused(text: str) -> None:
    with pytest.raises(LaunchError):
        hosts.from_text(text)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        *(("", "hostfile_empty"), ("# nothing\n", "hostfile_empty"), ("a slots=0\n", "host_slots")),
        *(("a slots\n", "hostfile_line"), ("a:2 slots=2\n", "host_name"), ("a max=3\n", "hostfile_line")),
    ],
)
def test_wrong_host_files_are_refused(tmp_path: Path, text: str, code: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(text)
    with refused(LaunchError, code) as error:
        hosts.from_file(str(path))
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("..:1", {"host": ".."}),
        (".".join(["a" * 63] * 4), {}),
        ("a" * 79 + "!", {"host": "a" * 79 + "!"}),
        ("a" * 80 + "!", {"host": "a" * 80 + "... (81 characters)"}),
        ("a" * 5000 + ":1", {"host": "a" * 80 + "... (5000 characters)"}),
        ("a:" + "1" * 5000, {"host": "a", "slots": "1" * 80 + "... (5000 characters)"}),
        ("node1=2", {"hint": "; slots stand behind a colon, as node1:2"}),
    ],
)
def test_hostile_hosts_are_refused_in_a_line(text: str, facts: dict[str, str]) -> None:
    """The error repeats at most 80 characters of the argument, however long a script's list is."""
    with refused(LaunchError, "host_slots" if "slots" in facts else "host_name", **facts) as error:
        hosts.chosen(1, text, None)
    assert len(str(error.value)) < 600


def test_many_hosts_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quadratic comparison of 100,000 names, each with a lookup, would take minutes."""
    file = tmp_path / "hosts"
    file.write_text("".join(f"node{number} slots=2\n" for number in range(100_000)))
    asked: list[str] = []
    monkeypatch.setattr(hosts, "is_local", lambda name: bool(asked.append(name)))
    started = time.monotonic()
    assert hosts.chosen(3, None, str(file)) == [Host("node0", 2), Host("node1", 1)]
    assert time.monotonic() - started < busy.patience(30) and asked == ["node0"]
    with refused(errors.too_few_slots, np=300_000, slots=200_000, how="") as error:
        hosts.chosen(300_000, None, str(file))
    assert len(str(error.value)) < 300


def test_more_ranks_than_a_machine_can_begin_are_refused() -> None:
    with refused(errors.too_many_here, np=9_999_999):
        hosts.chosen(9_999_999, None, None)


def test_a_machine_is_refused_the_first_rank_that_is_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    mebibytes, each = 100, hosts.WRAPPER_BYTES // 1024**2
    memory = SimpleNamespace(total=mebibytes * 1024**2)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    most = mebibytes // each
    assert hosts.chosen(most, None, None) == [Host("localhost", most)]
    with refused(errors.too_many_here, np=most + 1, memory=mebibytes, each=each):
        hosts.chosen(most + 1, None, None)


def test_names_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    addresses = {"alias": "127.0.1.1", "own": "127.0.0.1", "other": "192.0.2.1", "127.0.0.1": "127.0.0.1"}

    def resolved(name: str, *_: object, **__: object) -> list[tuple]:
        if name not in addresses:
            raise socket.gaierror(name)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (addresses[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket, "gethostname", lambda: "Me.example.org")
    hosts.is_local.cache_clear()
    for name in ("localhost", "127.0.0.1", "me", "ME.example.org", "alias", "own"):
        assert hosts.is_local(name), name
    assert not hosts.is_local("other") and not hosts.is_local("unknown")
    hosts.is_local.cache_clear()


def test_ranks_fill_hosts_in_order() -> None:
    assert hosts.chosen(4, None, None) == [Host("localhost", 4)]
    assert hosts.chosen(3, "a:2,b:4,c:1", None) == [Host("a", 2), Host("b", 1)]
    assert hosts.chosen(3, "localhost:2,127.0.0.1:2", None) == [Host("localhost", 3)]
    with refused(errors.too_few_slots, np=5, slots=4, hosts="a:2,b:2", how=""):
        hosts.chosen(5, "a:2,b:2", None)
    with refused(errors.too_few_slots, how=", as a:5"):
        hosts.chosen(5, "a:2", None)
    with refused(errors.hosts_exclude, options=["--hosts", "--hostfile"]):
        hosts.chosen(2, "a:2", "file")


def test_what_nccl_is_told() -> None:
    choice = Choice(interfaces=("eth0", "ib0"))
    assert job_hosts.nccl_environment({"tcp": True}, choice, {}) == {
        "NCCL_SOCKET_IFNAME": "eth0,ib0",
        "NCCL_IB_DISABLE": "1",
    }
    assert job_hosts.nccl_environment({}, choice, {"NCCL_SOCKET_IFNAME": "mine"}) == {}


def test_hosts_that_are_asked_by_ssh() -> None:
    environment = {"PATH": os.environ["PATH"]}
    where = job_hosts.job_hosts_of({"np": 5, "hosts": "localhost:1,b:2,127.0.0.1:1,c:2"}, environment)
    assert where.names() == ["localhost", "b", "127.0.0.1", "c"] and isinstance(where.shell, Ssh)
    assert where.here() == ["localhost", "127.0.0.1"] and where.others() == ["b", "c"]
    one = where.with_one_name_here()
    assert one.names() == ["localhost", "b", "c"], "all names of this machine are one host"
    assert one.slots() == (("localhost", 1), ("b", 2), ("localhost", 1), ("c", 1))
    assert job_hosts.job_hosts_of({"np": 2, "hosts": "localhost:2"}, environment).shell is None
    with refused(errors.no_ssh):
        job_hosts.job_hosts_of({"np": 2, "hosts": "b:2"}, {"PATH": "/nowhere"})
    with refused(errors.no_ranks):
        job_hosts.job_hosts_of({"hosts": "b:2"}, environment)


OPTIONS = {"np": 2, "start_timeout": 30, "exit_timeout": 60}
WAY = ByMpirun("/p/mpirun", "Open MPI 5")


def test_the_job_that_options_describe() -> None:
    values = {**OPTIONS, "binding_args": "--bind-to core", "mpi_args": '--mca x "a b"', "ssh_port": 23}
    values |= {"output_filename": "logs", "prefix_timestamp": True, "network_interfaces": ["eth0"]}
    job = by_mpirun.job_of(WAY, values, ["python", "x.py"], {"B": "1", "PATH": "2"})
    assert (job.mpirun, job.ranks, job.rank_command) == ("/p/mpirun", 2, ("python", "x.py"))
    assert (job.variables, job.ssh_port, job.network_interfaces) == ((), 23, ("eth0",))
    assert (job.binding, job.more_arguments) == (("--bind-to", "core"), ("--mca", "x", "a b"))
    assert (job.output_folder, job.timestamps) == ("logs", True)
    away = {**values, "hosts": "192.0.2.1:2"}
    told = by_mpirun.job_of(WAY, away, ["x"], {"B": "1", "PATH": os.environ["PATH"]})
    assert told.variables == ("PATH",) and not told.memory
    with refused(errors.wrong_value, option="--mpi-args", value='"open'):
        by_mpirun.job_of(WAY, {**values, "mpi_args": '"open'}, ["ls"], {})


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({"ddp": True}, "--ddp"),
        ({"master_port": 29500}, "--master-port"),
        ({"bind": "auto"}, "--bind auto"),
        ({"start_timeout": 40}, "--start-timeout"),
        ({"exit_timeout": 0}, "--exit-timeout"),
    ],
)
def test_what_only_agents_serve_is_refused(more: dict[str, Any], option: str) -> None:
    with refused(errors.option_of_agents, option=option):
        by_mpirun.run(WAY, {**OPTIONS, **more}, ["true"], {})


def test_shared_memory_has_room_for_so_many_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    has_room = by_mpirun.has_memory_for
    assert has_room(1, str(tmp_path)) and not has_room(1 << 40, str(tmp_path))
    assert not has_room(1, str(tmp_path / "none"))
    room = os.statvfs_result((4096, 4096, 0, 0, 3 * (32 << 20) // 4096, 0, 0, 0, 0, 255))  # of three ranks
    monkeypatch.setattr(os, "statvfs", lambda folder: room)
    assert has_room(3) and not has_room(4)


@pytest.mark.parametrize(("does", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_is_mpiruns(
    does: str, code: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The output is mpirun's, too, except the line about a launcher that the user did not choose."""
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f'#!/bin/sh\necho "$@"\necho its trouble >&2\n{does}\n')
    mpirun.chmod(0o755)
    way = ByMpirun(str(mpirun), "MPICH", "mpirun starts the ranks")
    assert by_mpirun.run(way, OPTIONS, ["python", "x.py"], {"PATH": os.environ["PATH"]}) == Ending(code)
    said = capfd.readouterr()
    assert said.out == "-np 2 -prepend-rank python x.py\n"
    assert said.err == "horovodrun: mpirun starts the ranks\nits trouble\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_are_passed_on_to_mpirun(number: int, tmp_path: Path) -> None:
    mpirun = tmp_path / "mpirun"
    mpirun.write_text(f"#!/bin/sh\ntrap 'exit 9' {number}\nkill -{number} $PPID\nsleep 60 & wait\n")
    mpirun.chmod(0o755)
    before = signal.getsignal(number)
    way = ByMpirun(str(mpirun), "MPICH")
    assert by_mpirun.run(way, OPTIONS, ["true"], {"PATH": os.environ["PATH"]}) == Ending(9)
    assert signal.getsignal(number) == before
