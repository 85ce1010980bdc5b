"""What `horovodrun` does with a command line, up to the job that it would start, which nobody starts here."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from pipes import closed_pipe, full_device
from typing import Any

import pytest
from horovod.runner.host_cache import HostCache
from horovod.runner.rank import PAYLOAD_VARIABLE

import horovod
from horovod.common.launched import MARK
from horovod.runner import launch, launchers, payload
from horovod.runner.agents.supervision import Ending, Launch
from horovod.runner.errors import LaunchError

DONE = Ending(0, "", None, True, {})


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Launch]:
    """The jobs that were started, with an mpirun that does not exist; each ends as the last of `endings`."""
    started: list[Launch] = []
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(launchers, "installed_mpirun", lambda: "/mpi/bin/mpirun")
    monkeypatch.setattr(launchers, "installed_flavour", lambda mpirun: "Open MPI 5")
    monkeypatch.setattr(launch, "run", lambda asked, output: (started.append(asked), DONE)[1])
    return started


def ending(monkeypatch: pytest.MonkeyPatch, what: Ending | BaseException) -> None:
    def launched(*_: object) -> Ending:
        if isinstance(what, BaseException):
            raise what
        return what

    monkeypatch.setattr(launch, "_launch", launched)


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
        (Ending(3, "rank 1 exited with code 3", 1, True, {}), 3, "horovodrun: rank 1 exited with code 3\n"),
        (Ending(141, "", None, True, {}), 141, ""),
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


def test_what_the_job_is_told(
    job: list[Launch], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(MARK, "of a job that we are in")
    monkeypatch.setenv("MINE", "kept")
    assert launch.main(["-np", "3", "--start-timeout", "7", "--cycle-time-ms", "2", "python", "t.py"]) == 0
    (asked,) = job
    assert (asked.ranks, asked.start_timeout, asked.verbose, asked.spare) == (3, 7, False, frozenset())
    assert asked.command[:4] == ["/mpi/bin/mpirun", "--allow-run-as-root", "-np", "3"]
    assert asked.command[-2:] == ["python", "t.py"] and asked.nonce in asked.command
    told = asked.environment
    assert (told["PYTHONUNBUFFERED"], told["HOROVOD_CYCLE_TIME"], told["MINE"]) == ("1", "2.0", "kept")
    assert MARK not in told and PAYLOAD_VARIABLE not in told
    assert len(asked.nonce) == 12 and capsys.readouterr() == ("", "")
    launch.main(["-np", "3", "--verbose", "python", "t.py"])
    assert job[1].verbose and job[1].nonce != asked.nonce


def test_a_function_is_stored_as_long_as_the_job_lasts(
    job: list[Launch], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bytes] = []

    def run(asked: Launch, _: object) -> Ending:
        found.append(payload.found(asked.environment[PAYLOAD_VARIABLE]))
        job.append(asked)
        return DONE

    monkeypatch.setattr(launch, "run", run)
    values = {"np": 2, "start_timeout": 5, "exit_timeout": 60}
    assert launch.start(values, ["python"], os.environ, b"contents") == DONE
    assert found == [b"contents"]
    with pytest.raises(FileNotFoundError):
        payload.found(job[0].environment[PAYLOAD_VARIABLE])


@pytest.mark.parametrize(
    ("what", "forgotten"),
    [(DONE, 0), (Ending(0, "", None, False, {}), 1), (Ending(1, "", None, True, {}), 1)],
)
def test_what_was_remembered_of_hosts_is_forgotten_after_a_failure(
    job: list[Launch], monkeypatch: pytest.MonkeyPatch, what: Ending, forgotten: int
) -> None:
    calls: list[object] = []
    monkeypatch.setattr(HostCache, "forget", lambda self, keys: calls.append(keys))
    monkeypatch.setattr(launch, "run", lambda *_: what)
    assert launch.start({"np": 1, "start_timeout": 5, "exit_timeout": 60}, ["true"], os.environ) == what
    assert len(calls) == forgotten


def test_ranks_of_torch_are_told_where_to_meet(job: list[Launch], capsys: pytest.CaptureFixture[str]) -> None:
    assert launch.main(["-np", "2", "--ddp", "python", "t.py"]) == 0
    told, words = job[0].environment, job[0].command
    assert (told["MASTER_ADDR"], told["WORLD_SIZE"], told["TORCHELASTIC_RUN_ID"]) == (
        "127.0.0.1",
        "2",
        job[0].nonce,
    )
    assert words[-4].endswith("ddp_rank.py") and words[-3:] == ["2:", "python", "t.py"]
