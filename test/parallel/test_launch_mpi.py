"""Ranks that mpirun starts: by itself, for `horovodrun --launcher mpi`, and for scripts that import mpi4py.

mpirun's messages are not tested: its command line runs, and exit codes and signals are passed.
"""

import importlib.util
import os
import re
import signal
import sys
from pathlib import Path

import launching
import pytest
from launching import all_end, fresh_mark, horovodrun
from rank_jobs import run_ranks

from horovod.runner import errors, launchers
from horovod.runner.errors import LaunchError

pytestmark = launching.needs_mpirun
needs_mpi4py = pytest.mark.skipif(
    importlib.util.find_spec("mpi4py") is None, reason="mpi4py is not installed"
)
MPI = ("--launcher", "mpi")


def is_open_mpi_5() -> bool:
    try:
        return launchers.installed_flavour(launchers.installed_mpirun()) == "Open MPI 5"
    except LaunchError:
        return False


needs_open_mpi_5 = pytest.mark.skipif(not is_open_mpi_5(), reason="other MPIs have labels of their own")
WITHOUT_MPI4PY = """
import torch, horovod.torch as hvd
hvd.init()
total = hvd.allreduce(torch.tensor([float(hvd.rank() + 1)]), op=hvd.Sum, name="x")
print(f"<sum {int(total.item())} size {hvd.size()} {hvd.mpi_enabled()}>", flush=True)
hvd.shutdown()
"""
WITH_MPI4PY = """
import torch, horovod.torch as hvd
from mpi4py import MPI
world = MPI.COMM_WORLD
hvd.init(comm=world)
assert (hvd.rank(), hvd.size()) == (world.rank, world.size)
total = hvd.allreduce(torch.tensor(world.rank + 1), op=hvd.Sum)
print(f"<sum {int(total)} and {world.allreduce(world.rank + 1)} size {hvd.size()}>", flush=True)
"""
SUMS = "<sum 3 and 3 size 2>"


def script_of(folder: Path, text: str) -> list[str]:
    (folder / "script.py").write_text(text)
    return [sys.executable, str(folder / "script.py")]


@needs_mpi4py
def test_a_communicator_under_plain_mpirun(tmp_path: Path) -> None:
    done = run_ranks(2, script_of(tmp_path, WITH_MPI4PY))
    assert (done.returncode, done.stdout.count(SUMS)) == (0, 2), done.stdout


@needs_mpi4py
def test_a_script_that_imports_mpi4py_is_started_by_mpirun_and_one_line_says_so(tmp_path: Path) -> None:
    words = script_of(tmp_path, WITH_MPI4PY)
    done = horovodrun("-np", "2", *words)
    assert (done.returncode, done.stdout.count(SUMS)) == (0, 2), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("horovodrun: ")]
    assert said == [f"horovodrun: mpirun starts the ranks (--launcher mpi), as {words[1]} imports mpi4py"], (
        done.stderr
    )


@needs_mpi4py
def test_mpi4py_under_agents_is_refused_on_every_rank(tmp_path: Path) -> None:
    """The import is in another file: each rank would be alone in its world."""
    (tmp_path / "helper.py").write_text("from mpi4py import MPI\n")
    words = script_of(tmp_path, "import helper, horovod.torch as hvd\nhvd.init()\nprint('in')\n")
    done = horovodrun("-np", "2", *words, limit=60)
    assert done.returncode == 1 and done.stdout == ""
    said = [line for line in done.stderr.splitlines() if "CannotStart" in line]
    assert {line[:12] for line in said} <= {"[0]<stderr>:", "[1]<stderr>:"} and said
    assert all("loaded mpi4py" in line and "`horovodrun --launcher mpi`" in line for line in said)
    alone = script_of(tmp_path, "import helper, horovod.torch as hvd\nhvd.init()\nprint(hvd.size())\n")
    assert horovodrun("-np", "1", *alone).stdout == "[0]<stdout>:1\n", "one rank is what mpi4py takes it for"


@needs_open_mpi_5
def test_lines_begin_with_the_rank_and_the_time_where_it_is_asked_for() -> None:
    label = r"\[\d+,(\d)\]<stdout>: "
    for option, time in (((), ""), (("--prefix-output-with-timestamp",), r"\[\w{3} \w{3} [\d :]+\]")):
        result = horovodrun(*MPI, "-np", "2", *option, "sh", "-c", "echo words $OMPI_COMM_WORLD_RANK")
        found = [re.fullmatch(f"{time}{label}words (\\d)", line) for line in result.stdout.splitlines()]
        assert result.returncode == 0 and len(found) == 2, result.stdout
        assert all(match and match[1] == match[2] for match in found), result.stdout


@needs_mpi4py
def test_mpi_abort() -> None:
    code = "from mpi4py import MPI; c = MPI.COMM_WORLD; c.Barrier(); c.rank == 1 and c.Abort(5); c.Barrier()"
    result = horovodrun("-np", "2", sys.executable, "-c", code, limit=30)
    assert result.returncode == 5 and "as the code after -c imports mpi4py" in result.stderr


def test_ranks_by_mpirun_meet(tmp_path: Path) -> None:
    words = script_of(tmp_path, WITHOUT_MPI4PY)
    for done in (horovodrun(*MPI, "-np", "4", *words), run_ranks(4, words)):
        assert (done.returncode, done.stdout.count("<sum 10 size 4 True>")) == (0, 4), done.stdout


def test_more_ranks_than_cores() -> None:
    """They yield the core while they wait."""
    many = len(os.sched_getaffinity(0)) + 2
    ask = "echo $OMPI_COMM_WORLD_RANK $OMPI_MCA_mpi_yield_when_idle"
    result = horovodrun(*MPI, "--verbose", "-np", str(many), "-H", f"localhost:{many}", "sh", "-c", ask)
    assert result.returncode == 0, result.stderr
    said = sorted(line.rpartition(":")[2].strip() for line in result.stdout.splitlines())
    assert said == sorted(f"{rank} 1" for rank in range(many))
    assert f" -np {many} -H localhost:{many} --bind-to none " in result.stderr


def test_the_exit_code_of_the_failing_rank() -> None:
    script = "if [ $OMPI_COMM_WORLD_RANK = 1 ]; then sleep 0.3; echo oh >&2; exit 3; else sleep 300; fi"
    result = horovodrun(*MPI, "-np", "3", "sh", "-c", script, limit=30)
    assert result.returncode == 3 and "oh\n" in result.stderr


def test_a_command_that_does_not_exist() -> None:
    result = horovodrun(*MPI, "-np", "2", "no-such-command-here", limit=30)
    assert result.returncode != 0 and "no-such-command-here" in result.stderr


def test_output_files(tmp_path: Path) -> None:
    script = "echo out $OMPI_COMM_WORLD_RANK"
    result = horovodrun(*MPI, "-np", "2", "--output-filename", str(tmp_path), "sh", "-c", script)
    assert result.returncode == 0, result.stderr
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert sorted(line.rpartition(":")[2].strip() for line in written.splitlines()) == ["out 0", "out 1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_are_passed_to_mpirun_which_ends_the_ranks(number: signal.Signals) -> None:
    mark = fresh_mark()
    process = launching.start([*MPI, "-np", "2", "sh", "-c", "echo up; exec sleep 300"], mark)
    assert process.stdout is not None
    assert all(process.stdout.readline().endswith("up\n") for _ in range(2))
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode != 0
    all_end(mark, 10)


def test_no_rank_outlives_horovodrun() -> None:
    mark = fresh_mark()
    process = launching.start([*MPI, "-np", "2", "sh", "-c", "echo up; exec sleep 300"], mark)
    assert process.stdout is not None
    assert all(process.stdout.readline().endswith("up\n") for _ in range(2))
    process.kill()
    process.communicate(timeout=30)
    all_end(mark, 15)


def test_what_mpirun_cannot_do_is_refused() -> None:
    refused = horovodrun(*MPI, "--ddp", "-np", "2", "true")
    said = errors.option_of_agents(option="--ddp", about="tells ranks where they meet")
    assert (refused.returncode, refused.stderr) == (2, f"horovodrun: {said}\n")
