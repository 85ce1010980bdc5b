"""``horovodrun --tune-launch``: the trials, their comparison, and the script's report of its steps."""

# private: _Jobs, _Probe, _Stopped, _words: simulated jobs, and a signal at this moment

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from refusals import refused

from horovod.common import time_limits
from horovod.runner import errors, launch, processes, tune_launch
from horovod.runner.processes import ENDING
from horovod.runner.tune_launch import Candidate, JobFailed, candidates, seconds_in, tune, without_own
from horovod.torch import autotune


def test_what_the_user_has_decided_is_not_tried() -> None:
    assert [each.name for each in candidates({}, {}, "libjemalloc.so.2")] == [
        "--bind auto", "malloc keeps large blocks", "malloc uses huge pages", "jemalloc",
    ]  # fmt: skip
    decided = {"HOROVOD_BIND": "auto", "GLIBC_TUNABLES": "", "LD_PRELOAD": ""}
    assert candidates({}, decided, "libjemalloc.so.2") == []


@pytest.mark.parametrize(
    "said",
    [
        {"bind": "auto"}, {"bind": "none"}, {"binding_args": "--bind-to core"},
        {"mpi_args": "--bind-to core --map-by socket"},
    ],
)  # fmt: skip
def test_how_flags_and_file_bind_ranks_is_left_alone(said: dict[str, str]) -> None:
    """Its variable would have no effect there, or contradict."""
    assert "--bind auto" not in [each.name for each in candidates(said, {}, None)]


def test_mpi_args_about_something_else() -> None:
    said = {"mpi_args": "--mca btl_tcp_links 2", "binding_args": ""}
    assert candidates(said, {"HOROVOD_BIND": " "}, None)[0].name == "--bind auto"


def test_what_is_faster_is_kept_for_the_next() -> None:
    asked: list[dict[str, str]] = []
    seconds = {"": 0.2, "A": 0.1, "B": 0.2, "AB": 0.11}

    def measure(variables: Mapping[str, str]) -> float:
        asked.append(dict(variables))
        return seconds["".join(sorted(variables))] * (1 + 0.001 * (len(asked) % 3))

    kept, table = tune([Candidate("first", {"A": "1"}), Candidate("second", {"B": "1"})], measure)
    assert kept == {"A": "1"} and len(asked) == 12 and asked[-1] == {"A": "1", "B": "1"}
    assert "kept" in table.splitlines()[1] and table.splitlines()[2].endswith("-")


def test_the_line_of_a_rank() -> None:
    assert seconds_in("[0]<stdout>:horovod: a step takes 0.012300 s, the median of 30") == 0.0123
    assert seconds_in("a step takes long") is None


def test_the_words_of_the_job() -> None:
    words = ["--tune-launch", "-np", "2", "--tune-launch-steps", "9", "python", "x.py", "--tune-launch"]
    assert without_own(words, 3) == ["-np", "2", "python", "x.py", "--tune-launch"]
    assert without_own(["--tune-launch-steps=9", "--tune-launch", "ls"], 1) == ["ls"]


def test_a_candidate_whose_job_fails_is_out() -> None:
    """Also if the failed job is the default one. Gains of other candidates are kept and shown."""
    asked: list[str] = []

    def measure(variables: Mapping[str, str]) -> float:
        asked.append("".join(variables))
        if "B" in variables or asked == ["", "A", "", "A", "", "A", *3 * ["A", "AC"], "A", "AB", "A"]:
            raise JobFailed("it has ended; its last words:\nboo")
        return 0.1 if "A" in variables else 0.2

    tried = [Candidate(name, {name: "1"}) for name in "ACBD"]
    kept, shown = tune(tried, measure)
    assert kept == {"A": "1"}
    lines = shown.splitlines()
    assert [line.split()[0] + line.split()[-1] for line in lines[1:5]] == [
        "Akept",
        "C-",
        "Bfailed",
        "Dfailed",
    ]
    assert lines[5:] == [
        "B: it has ended; its last words:", "boo", "D: it has ended; its last words:", "boo",
    ]  # fmt: skip


def test_a_script_that_fails_as_it_is_ends_everything() -> None:
    def measure(_: Mapping[str, str]) -> float:
        raise JobFailed("boo")

    with pytest.raises(JobFailed, match="boo"):
        tune([Candidate("A", {"A": "1"})], measure)


def jobs_of(script: str, steps: int = 3) -> tune_launch._Jobs:
    jobs = tune_launch._Jobs([], steps)
    jobs._words = [sys.executable, "-c", script]
    return jobs


@pytest.mark.parametrize(
    ("script", "is_late", "words"),
    [
        ("import time; time.sleep(60)", True, ""),
        ("print('done')", False, "\ndone"),
        ("import os; os.write(1, b'\\xff\\n')", False, "\n\ufffd"),
    ],
)
def test_a_script_that_says_nothing(
    script: str, is_late: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time_limits, "TUNE_JOB", 1.0)
    facts = {"is_late": is_late, "how": " with A='1 2'", "steps": 14, "counted": 3}
    with refused(errors.tune_job_failed, **facts) as error:
        jobs_of(script).seconds({"A": "1 2"})
    assert str(error.value).endswith(words) and (not is_late or "after 1 s" in str(error.value))


def test_a_job_is_ended_when_it_has_said_it(tmp_path: Path) -> None:
    script = f"""
import os, signal, sys
def end(*_):
    open({str(tmp_path / "told")!r}, "w").write(os.environ["A"] + os.environ["HOROVOD_TUNE_LAUNCH_STEPS"])
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("horovod: a step takes 0.5 s, the median of 3", flush=True)
signal.pause()
"""
    assert jobs_of(script).seconds({"A": "1"}) == 0.5
    assert (tmp_path / "told").read_text() == "13"


@pytest.mark.parametrize("number", ENDING)
def test_a_signal_ends_the_job_that_runs(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The job has ended before this function returns, and no other job starts."""
    file = tmp_path / "told"
    script = f"""
import os, signal, sys, time
def end(*_):
    time.sleep(0.2)
    open({str(file)!r}, "a").write("ended")
    sys.exit()
signal.signal(signal.SIGTERM, end)
os.kill(os.getppid(), {int(number)})
signal.pause()
"""
    before = [signal.getsignal(each) for each in ENDING]
    jobs = jobs_of(script)
    monkeypatch.setattr(tune_launch, "_Jobs", lambda *_: jobs)
    values: dict[str, Any] = {"np": 2}
    assert tune_launch.main(["python", "x.py"], 2, values, values) == 128 + number
    assert file.read_text() == "ended"
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"horovodrun: stopped by {signal.Signals(number).name}, all ranks were ended"
    assert before == [signal.getsignal(each) for each in ENDING]


def test_a_signal_between_two_jobs() -> None:
    jobs = jobs_of("raise SystemExit")
    with processes.heeding(jobs.stop):
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(tune_launch._Stopped):
            jobs.seconds({})


def test_a_job_that_does_not_end_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time_limits, "TUNE_JOB_END", 0.2)
    script = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("horovod: a step takes 0.5 s, the median of 3", flush=True)
while True:
    signal.pause()
"""
    assert jobs_of(script).seconds({}) == 0.5


@pytest.mark.parametrize(
    ("line", "code", "facts"),
    [
        ("--tune-launch -np 1 python x.py", "tune_one_rank", {}),
        ("--tune-launch -np 2", "no_command", {}),
        ("--tune-launch python x.py", "no_ranks", {}),
        ("--tune-launch -np 2 --topology-file x.svg python x.py", "alone", {"other": "--topology"}),
        ("--tune-launch-steps 5 -np 2 python x.py", "alone", {"other": "--tune-launch"}),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(
    line: str, code: str, facts: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(tune_launch, "_Jobs")
    monkeypatch.setattr(launch, "LaunchError", ZeroDivisionError)  # main would print it, and return 2
    with refused(getattr(errors, code), **facts):
        launch.main(line.split())


def test_the_config_file_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in any job: the launcher reports the binding of ranks here, and decides the rest."""
    (tmp_path / "c.yaml").write_text("params: {bind: auto}\n")
    for name in ("GLIBC_TUNABLES", "LD_PRELOAD"):
        monkeypatch.setenv(name, "")
    monkeypatch.delattr(tune_launch, "_Jobs")
    words = ["--tune-launch", "-np", "2", "--config-file", str(tmp_path / "c.yaml"), "python", "x.py"]
    assert launch.main(words) == launch.USAGE_ERROR


class _Elsewhere:
    """A sys.stdout that a script has replaced, for example to write a log."""

    def write(self, _: str) -> None: ...
    def flush(self) -> None: ...


def test_what_a_rank_says(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """At the launcher's last step, on standard output, wherever the script prints."""
    monkeypatch.setattr(autotune.basics, "rank", lambda: 0)
    monkeypatch.setattr(sys, "stdout", _Elsewhere())
    probe = autotune._Probe(3)
    for _ in range(tune_launch.NOT_COUNTED + 3):
        assert capfd.readouterr().out == ""
        probe.step_ended()
    assert seconds_in(capfd.readouterr().out) is not None
