"""`horovodrun` from the command line up to the start of the job, which the tests replace."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pipes import closed_pipe, full_device
from typing import Any

import pytest

import horovod
from horovod.common.launched import MARK
from horovod.runner import by_agents, by_mpirun, launch, launchers
from horovod.runner.agents.driver import Interrupted
from horovod.runner.agents.places import PAYLOAD, TERMINALS
from horovod.runner.agents.supervision import Ending
from horovod.runner.errors import LaunchError

DONE = Ending(0)


def ending(monkeypatch: pytest.MonkeyPatch, what: Ending | BaseException) -> None:
    def launched(*_: object) -> Ending:
        if isinstance(what, BaseException):
            raise what
        return what

    monkeypatch.setattr(launch, "start", launched)


def test_what_it_says_without_a_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ending(monkeypatch, AssertionError("no job was asked for"))
    monkeypatch.setattr("horovod.runner.build_report.report", lambda: "what was built")
    monkeypatch.setattr(launch.command_line, "completion", lambda shell: f"completes in {shell}")
    for words, said in (
        (["--version"], horovod.__version__),
        (["--check-build"], "what was built"),
        (["--print-completion", "zsh"], "completes in zsh"),
    ):
        assert launch.main(words) == 0
        assert capsys.readouterr() == (f"{said}\n", "")
    monkeypatch.setattr(sys, "argv", ["horovodrun", "-v"])
    assert launch.run_commandline() == 0
    assert capsys.readouterr().out == f"{horovod.__version__}\n"


@pytest.mark.parametrize(
    ("what", "code", "said"),
    [
        (DONE, 0, ""),
        (Ending(3, "rank 1 exited with code 3", 1), 3, "horovodrun: rank 1 exited with code 3\n"),
        (Ending(141), 141, ""),
        (LaunchError("give less"), 2, "horovodrun: give less\n"),
        (KeyboardInterrupt(), 130, "horovodrun: stopped by SIGINT before any rank started\n"),
    ],
)
def test_how_a_job_ended_is_said_in_a_line_and_by_the_code(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: Ending | BaseException,
    code: int,
    said: str,
) -> None:
    ending(monkeypatch, what)
    assert launch.main(["-np", "1", "true"]) == code
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize(
    ("opened", "code", "said"),
    [
        (closed_pipe, 141, ""),
        (full_device, 1, "horovodrun: standard output cannot be written: No space left on device\n"),
    ],
)
def test_a_standard_output_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    opened: Callable[[str], Any],
    code: int,
    said: str,
) -> None:
    with opened("w") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert launch.main(["--version"]) == code
        monkeypatch.undo()
    assert capsys.readouterr().err == said


def test_without_a_standard_output_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch, "open_closed_ones", lambda: False)
    ending(monkeypatch, AssertionError("something was started"))
    assert launch.main(["-np", "1", "true"]) == launch.USAGE_ERROR
    assert capsys.readouterr().err.startswith(
        "horovodrun: standard output is closed, and ranks' output would"
    )


def test_the_topology_is_another_program_with_the_same_words(monkeypatch: pytest.MonkeyPatch) -> None:
    became: list[tuple[str, list[str]]] = []

    def execv(*what: Any) -> None:
        became.append(what)
        raise SystemExit

    monkeypatch.setattr(os, "execv", execv)
    words = ["-np", "2", "--topology", "--topology-file", "x.svg"]
    with pytest.raises(SystemExit):
        launch.main(words)
    ((program, its),) = became
    assert program == its[0] == sys.executable and its[4:] == words
    assert json.loads(its[3]) == sys.path


def environment_of_ranks(*options: str) -> dict[int, dict[str, str]]:
    """Ranks of a real job, in a separate process, as horovodrun ends all its descendants."""
    shows = "import json, os; print(json.dumps(dict(os.environ)))"
    words = [sys.executable, "-m", "horovod.runner", *options, sys.executable, "-S", "-c", shows]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lines = (line.partition("]<stdout>:") for line in done.stdout.splitlines())
    return {int(label[1:]): json.loads(told) for label, _, told in lines}


def test_what_ranks_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, "of a job that we are in")
    monkeypatch.setenv("MINE", "kept")
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "7")
    ranks = environment_of_ranks("-np", "2", "--start-timeout", "7", "--cycle-time-ms", "2")
    assert sorted(ranks) == [0, 1]
    for rank, told in ranks.items():
        assert (told["HOROVOD_RANK"], told["HOROVOD_SIZE"]) == (str(rank), "2")
        assert (told["PYTHONUNBUFFERED"], told["HOROVOD_CYCLE_TIME"], told["MINE"]) == ("1", "2.0", "kept")
        assert told["HOROVOD_START_TIMEOUT"] == "7" and told["HOROVOD_AGENT"]
        assert not {MARK, PAYLOAD, TERMINALS, "OMPI_COMM_WORLD_RANK"} & told.keys()
    assert ranks[0]["HOROVOD_SECRET"] == ranks[1]["HOROVOD_SECRET"]


def test_ranks_of_torch_are_told_where_to_meet() -> None:
    ranks = environment_of_ranks("-np", "2", "--ddp")
    assert [told["RANK"] for _, told in sorted(ranks.items())] == ["0", "1"]
    meeting = {"MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
    assert meeting.items() <= ranks[1].items()
    for name in ("MASTER_PORT", "TORCHELASTIC_RUN_ID"):
        assert ranks[0][name] == ranks[1][name] != ""


def test_a_signal_before_any_rank_has_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> Ending:
        raise Interrupted(signal.SIGTERM)

    monkeypatch.setattr(by_agents, "run", interrupted)
    assert launch.main(["-np", "1", "true"]) == 143
    assert capsys.readouterr().err == "horovodrun: stopped by SIGTERM before any rank started\n"


def test_which_launcher_a_job_goes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[str] = []
    monkeypatch.setattr(launchers, "installed_mpirun", lambda: "/mpi/bin/mpirun")
    monkeypatch.setattr(launchers, "installed_flavour", lambda mpirun: "Open MPI 5")
    monkeypatch.setattr(by_agents, "run", lambda *_: (came.append("agents"), DONE)[1])
    monkeypatch.setattr(by_mpirun, "run", lambda *_: (came.append("mpirun"), DONE)[1])
    for options in ((), ("--launcher", "tcp"), ("--gloo",), ("--launcher", "mpi"), ("--mpi",)):
        assert launch.main(["-np", "2", *options, "true"]) == 0
    assert came == ["agents"] * 3 + ["mpirun"] * 2
