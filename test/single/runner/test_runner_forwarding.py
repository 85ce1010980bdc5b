"""Which variables other hosts get and by which way, and the agent that starts mpirun's daemons there."""

# private: _readable: a descriptor of that length

import io
import os
import subprocess
import sys
import warnings

import pytest
from horovod.common.listeners import DAEMONS_VARIABLE
from refusals import refused

from horovod.runner import daemon_agent, errors, forwarding
from horovod.runner.forwarding import Forwarding, forwarded_variables
from horovod.runner.hosts import Host
from horovod.runner.job_hosts import JobHosts
from horovod.runner.shell import Srun, Ssh
from horovod.runner.starting import ByAgents, ByMpi

MINE = {"PATH": "p", "HF_TOKEN": "s", "HOROVOD_SIMD": "x", "NCCL_AUTH_TOKEN": "s", "DATA": "d", "HOME": "h"}
OTHERS = (Host("192.0.2.1", 1), Host("192.0.2.2", 1))


def test_what_belongs_to_this_machine_or_another_job_is_not_forwarded() -> None:
    names = ["PATH", "HOME", "OLDPWD", "TMPDIR", "BASH_FUNC_x%%", "CUDA_VISIBLE_DEVICES"]
    names += ["_HOROVOD_SECRET_KEY", "NV_CUDA_VISIBLE_DEVICES", "SSH_AUTH_SOCK", "PMIX_RANK", "SLURM_JOB_ID"]
    names += ["HOROVOD_CYCLE_TIME"]
    assert forwarded_variables(names) == ("HOME", "HOROVOD_CYCLE_TIME", "PATH")


def test_over_ssh_mpirun_sends_nothing() -> None:
    there = JobHosts(2, OTHERS, Ssh())
    assert there.forwarding({}, MINE) == Forwarding()
    assert there.daemon_agent() == (sys.executable, "-I", "-S", daemon_agent.__file__)


def test_another_way_than_ssh_withholds_what_may_be_secret_and_names_it() -> None:
    found = JobHosts(2, OTHERS).forwarding({}, MINE)
    assert (found.open, found.withheld) == (("HOROVOD_SIMD", "PATH"), ("DATA", "HF_TOKEN", "NCCL_AUTH_TOKEN"))
    assert "DATA, HF_TOKEN, NCCL_AUTH_TOKEN" in found.warning()
    assert found.warning().endswith('--mpi-args="-x DATA -x HF_TOKEN -x NCCL_AUTH_TOKEN"')
    asked = JobHosts(2, OTHERS).forwarding({"mpi_args": "-x HF_TOKEN -x DATA=4"}, MINE)
    assert (asked.open, asked.withheld) == (found.open, ("NCCL_AUTH_TOKEN",))
    assert JobHosts(2, OTHERS).daemon_agent() == ()
    assert JobHosts(2, (Host("localhost", 2),)).forwarding({}, MINE).warning() == ""
    assert JobHosts(2, OTHERS).forwarding({}, {"HOROVOD_SECRET": "s"}).withheld == ("HOROVOD_SECRET",)


def test_srun_passes_the_environment_on_unless_told_not_to() -> None:
    there = JobHosts(2, OTHERS, Srun())
    for export in ({}, {"SLURM_EXPORT_ENV": "ALL,X=1"}):
        assert there.forwarding({}, {**MINE, **export}) == Forwarding()
    none = there.forwarding({}, {**MINE, "SLURM_EXPORT_ENV": "NONE"})
    assert "HF_TOKEN" in none.withheld and "PATH" in none.open and "SLURM_EXPORT_ENV" in none.warning()
    some = there.forwarding({}, {**MINE, "SLURM_EXPORT_ENV": "HF_TOKEN,DATA,PATH"})
    assert (some.open, some.withheld) == (("HOROVOD_SIMD",), ("NCCL_AUTH_TOKEN",))


def test_an_mpi_that_sends_everything_is_warned_about() -> None:
    said = forwarding.warning_of_exposure(MINE, "MPICH")
    assert "MPICH" in said and "HF_TOKEN, NCCL_AUTH_TOKEN" in said and "DATA" not in said
    assert forwarding.warning_of_exposure({"PATH": "p"}, "MPICH") == ""
    there = JobHosts(2, OTHERS, Ssh())  # where Open MPI's daemons get all by ssh
    assert ByMpi("mpirun", "MPICH").warning(there, {}, MINE) == said
    assert ByMpi("mpirun", "Open MPI").warning(there, {}, MINE) == ""
    assert ByAgents().warning(there, {}, MINE) == ""


def test_a_path_that_mpirun_would_tear_apart_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/my home/bin/python")
    with refused(errors.torn_path, paths=["/my home/bin/python", daemon_agent.__file__]):
        JobHosts(2, OTHERS, Ssh()).daemon_agent()


def test_what_ssh_is_asked() -> None:
    before = "PREFIX=/p;export PREFIX;"
    words = ["-p", "22", "--", "node", f"{before}/p/prted", "--prtemca", "ess", '"env"']
    start = f"{sys.executable} -I -S {daemon_agent.__file__} --there"
    expected = ["ssh", "-p", "22", "--", "node", f"{before}{start} /p/prted", "--prtemca", "ess", '"env"']
    assert daemon_agent.words_for_ssh(words) == expected
    assert daemon_agent.words_for_ssh(["--", "node", "orted", "-x"])[-2:] == [f"{start} orted", "-x"]


def test_the_environment_on_its_way() -> None:
    sent = {b"A": b"1\n2=3", b"B": b"", b"C": b"\xff'\""}
    data = daemon_agent.packed(sent.items())
    assert daemon_agent.unpacked(io.BytesIO(data + b"more")) == sent
    for broken in (b"", data[:-1], data[1:], data[:25]):
        with pytest.raises(ValueError, match=r"it does not begin|it ends after"):
            daemon_agent.unpacked(io.BytesIO(broken))
    own = {b"LD_LIBRARY_PATH": b"/mpi:/mpi:", b"HOME": b"/there", b"PATH": b"/bin"}
    given = {b"LD_LIBRARY_PATH": b"/mine:/mpi", b"PATH": b"/here"}
    assert daemon_agent.merged(own, given) == {
        b"LD_LIBRARY_PATH": b"/mpi:/mine",
        b"HOME": b"/there",
        b"PATH": b"/here",
    }


def test_an_input_that_somebody_else_has_read_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    program = [sys.executable, "-I", "-S", daemon_agent.__file__, daemon_agent.THERE, "true"]
    code = os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", '"$0" "$@" </dev/null', *program])
    assert code == daemon_agent.NOT_UNDERSTOOD
    assert f"the environment did not reach {os.uname().nodename}" in capfd.readouterr().err


def test_ssh_reads_the_environment_where_there_is_no_file_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    for has_one in (True, False):
        if not has_one:
            monkeypatch.delattr(os, "memfd_create", raising=False)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # they would go to the user's screen
            descriptor = daemon_agent._readable(b"environment" * 10_000)
        with open(descriptor, "rb") as file:
            assert file.read() == b"environment" * 10_000


# Waits until its socket is bound to the loopback device, or for so many seconds.
DAEMON = """
import os, socket, sys, time
with socket.create_server(("", 0)) as listener:
    end = time.monotonic() + float(sys.argv[1])
    def device(): return listener.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0")
    while not device() and time.monotonic() < end:
        time.sleep(0.01)
    print(os.getpid(), device().decode() or "-", os.environ["GIVEN"], repr(sys.stdin.read()), flush=True)
exec(sys.argv[2])
"""


def of_daemon(networks: str, seconds: float, end: str = "sys.exit(7)") -> tuple[int, int, list[str], str]:
    """The agent's exit code and process, and what the daemon and the agent say."""
    if not sys.platform.startswith("linux"):
        pytest.skip("sockets are narrowed on Linux only")
    program = [sys.executable, "-I", "-S", daemon_agent.__file__, daemon_agent.THERE]
    daemon = [sys.executable, "-c", DAEMON, str(seconds), end]
    given = {"GIVEN": "to-ranks", daemon_agent.VERBOSE_VARIABLE: "1", DAEMONS_VARIABLE: networks}
    data = daemon_agent.packed((name.encode(), text.encode()) for name, text in given.items())
    pipe = subprocess.PIPE
    with subprocess.Popen([*program, *daemon], stdin=pipe, stdout=pipe, stderr=pipe) as agent:
        out, err = agent.communicate(data, timeout=60)
    return agent.returncode, agent.pid, out.decode().split(), err.decode()


def test_the_agent_narrows_what_the_daemon_listens_on() -> None:
    code, agent, (process, device, *rest), err = of_daemon("lo", 20)
    if "listens on all networks" in err:
        pytest.skip(f"this system says no: {err}")
    assert (code, device, rest, err) == (7, "lo", ["to-ranks", "''"], "")
    assert int(process) != agent
    assert of_daemon("lo", 20, "os.kill(os.getpid(), 15)")[0] == 128 + 15


def test_the_agent_says_what_it_could_not_narrow() -> None:
    code, _, (_, device, *_), err = of_daemon("nosuch0", 2.5)
    assert (code, device) == (7, "-")
    assert f"daemon listens on all networks of {os.uname().nodename}: " in err


def test_the_agent_becomes_the_daemon_where_nothing_is_to_be_narrowed() -> None:
    code, agent, (process, device, *rest), err = of_daemon("", 0)
    assert (code, int(process), device, rest, err) == (7, agent, "-", ["to-ranks", "''"], "")
