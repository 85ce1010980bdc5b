"""Doing runs, repeating runs that other programs disturbed, and the output of `python -m horovod.lab`."""

# private: _MadeHostsOnDemand, _Work, _hosts_of, _run: a run without a launcher, and hosts that are not made

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import busy
import pytest
from lab_logs import plan, records, written

from horovod.lab import __main__ as main
from horovod.lab import conduct, errors, folders, load
from horovod.lab.load import Load
from horovod.lab.places import hosts_of
from horovod.lab.runs import Plan

PLANS = [plan(2, name, seed) for name in ("none", "bit8") for seed in (1, 2)]


class Said:
    """A display that records its calls."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[Any] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    @contextlib.contextmanager
    def run(self, title: str, _: Plan) -> Iterator[Any]:
        self.say(title)
        yield self.steps.append


Outcome = float | BaseException


@pytest.fixture
def doing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[list[str], list[str]]]:
    """Do PLANS. outcomes: the load by other processes during each run, in order."""

    def do(outcomes: list[Outcome], repeats: int = 0) -> tuple[list[str], list[str]]:
        left = list(outcomes)

        def run(out: Path, of: Plan, *_: Any) -> None:
            outcome = left.pop(0)
            if isinstance(outcome, BaseException):
                folders.prepare(out, of)
                raise outcome
            written(out, of, records(of), Load(0.0, outcome, 0.0))

        monkeypatch.setattr(conduct, "_run", run)
        said = Said()
        try:
            failed = conduct.conduct(tmp_path, PLANS, said, repeats)
        except KeyboardInterrupt:
            failed = ["stopped"]
        assert not left
        return failed, said.lines

    return do


def shares(out: Path) -> dict[str, float]:
    """The load by other processes during the run in each folder."""
    found = {}
    for path in sorted((out / "runs").iterdir()):
        load = folders.load_in(path)
        assert load is not None
        found[
            path.name.replace("-epochs2", "").partition("-train")[0] + path.name[-2:] * ("~" in path.name)
        ] = load.during
    return found


def test_disturbed_runs_are_named(doing: Any, tmp_path: Path) -> None:
    failed, said = doing([0.01, 0.2, 0.3, 0.04])
    assert failed == []
    assert shares(tmp_path) == {
        "np2-none-seed1": 0.01,
        "np2-bit8-seed1": 0.2,
        "np2-bit8-seed2": 0.3,
        "np2-none-seed2": 0.04,
    }
    assert sum("disturbed: others took" in line for line in said) == 2
    assert "other programs disturbed 2 of 4 runs: np2-bit8-seed1" in said[-1]
    assert "--repeat-disturbed" in said[-1]


def test_they_are_done_again(doing: Any, tmp_path: Path) -> None:
    """The less disturbed run counts; the other one is kept."""
    failed, said = doing([0.01, 0.2, 0.3, 0.04, 0.02, 0.4], repeats=1)
    assert failed == []
    found = shares(tmp_path)
    assert (found["np2-bit8-seed1"], found["np2-bit8-seed1~1"]) == (0.02, 0.2)
    assert (found["np2-bit8-seed2"], found["np2-bit8-seed2~1"]) == (0.3, 0.4)
    assert [line for line in said if "again:" in line and line.startswith("run")] == [
        line for line in said if line.startswith(("run 1 of 2 again: np2-bit8-seed1", "run 2 of 2 again"))
    ]
    assert "disturbed 1 of 4 runs: np2-bit8-seed2" in said[-1]
    failed, said = doing([0.0], repeats=3)  # the lab again: repeats only disturbed runs
    assert "4 of 4 runs are done already" in said[0]
    assert shares(tmp_path)["np2-bit8-seed2"] == 0.0
    assert not any("other programs disturbed" in line for line in said)


@pytest.mark.parametrize("ending", [conduct.RunFailed("it ended with exit code 1"), KeyboardInterrupt()])
def test_a_repetition_that_does_not_end_changes_nothing(
    ending: BaseException, doing: Any, tmp_path: Path
) -> None:
    failed, _ = doing([0.01, 0.2, 0.01, 0.01, ending], repeats=1)
    assert failed == (["stopped"] if isinstance(ending, KeyboardInterrupt) else [])
    assert shares(tmp_path)["np2-bit8-seed1"] == 0.2
    assert len(shares(tmp_path)) == 4
    assert all(folders.is_finished(tmp_path, each) for each in PLANS)


def test_a_run_that_failed_is_not_repeated_as_disturbed(doing: Any, tmp_path: Path) -> None:
    failed, said = doing([0.01, conduct.RunFailed("no"), 0.01, 0.01], repeats=2)
    assert len(failed) == 1 and failed[0].startswith("np2-bit8-seed1")
    assert sum("FAILED" in line for line in said) == 1


SCRIPT = """
import json, os, signal, subprocess, sys, time
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print("threads", os.environ["OMP_NUM_THREADS"], os.environ.get("HOROVOD_COMPRESSION"), flush=True)
for number in range(20):
    print("line", number, file=sys.stderr, flush=True)
with open(given["--log-file"], "w") as log:
    log.write(open(__file__ + ".log").read())
"""


@dataclass
class Runs:
    """Runs of one rank with a script that ends as `ending` says, after it has written the log `found`."""

    out: Path
    of: Plan

    def do(self, ending: str = "", found: list[Any] | None = None) -> tuple[bool, list[str], list[Any]]:
        """(success, messages, steps)"""
        Path(self.of.script).write_text(SCRIPT + ending)
        text = "".join(json.dumps(record) + "\n" for record in (records(self.of) if found is None else found))
        Path(f"{self.of.script}.log").write_text(text)
        said = Said()
        work = conduct._Work(self.out, conduct._MadeHostsOnDemand(), said)
        done = work.do(self.of, "1 of 1")
        return done, said.lines, said.steps

    @property
    def folder(self) -> Path:
        return folders.folder_of(self.out, self.of)


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    monkeypatch.setattr(load, "while_quiet", lambda: 0.0)
    monkeypatch.setattr(conduct, "LOOK_EVERY", 0.01)
    return Runs(tmp_path / "out", replace(plan(1, threads=3), script=str(tmp_path / "train.py")))


def test_a_run_leaves_its_output_its_log_and_how_busy_others_were(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_COMPRESSION", "bit8")
    monkeypatch.setattr(load, "others", lambda *_: 0.25)
    done, said, _ = runs.do()
    assert done and folders.is_finished(runs.out, runs.of) and folders.is_disturbed(runs.out, runs.of)
    output = (runs.folder / folders.OUTPUT).read_text().splitlines()
    assert output[0] == f"$ {shlex.join(conduct.words_of(runs.of, (runs.folder / folders.LOG).resolve()))}"
    assert output[1:3] == ["threads 3 None", "line 0"] and output[-1] == "line 19"
    assert said[0] == f"run 1 of 1: {runs.folder.name}"
    assert re.fullmatch(
        rf"{runs.folder.name}: \d s, 3\.2 s of it training; accuracy 92\.10%; "
        "disturbed: others took 25% of the processors",
        said[1],
    )


def test_steps_are_shown_while_a_run_is_under_way(runs: Runs) -> None:
    done, _, steps = runs.do("time.sleep(0.2)")
    assert done and steps and steps[-1]["event"] == "step" and steps[-1]["loss"] == pytest.approx(2 / 6 + 0.1)


@pytest.mark.parametrize(
    ("ending", "found", "why"),
    [
        ("sys.exit(3)", None, "it ended with exit code 3"),
        ("os.kill(os.getpid(), signal.SIGKILL)", None, "it ended with SIGKILL"),
        ("", [], "it ended well, but its log is not right: "),
    ],
)
def test_a_run_that_fails_says_how_and_does_not_count(
    runs: Runs, ending: str, found: list[Any] | None, why: str
) -> None:
    done, said, _ = runs.do(ending, found)
    assert not done
    assert said[-1].startswith(f"{runs.folder.name} FAILED. {runs.folder.resolve()}: {why}")
    shown = said[-1].partition(f"The end of its {folders.OUTPUT}:\n")[2].splitlines()
    assert shown == [f"    line {number}" for number in range(20 - conduct.LAST_LINES, 20)]
    assert not folders.is_finished(runs.out, runs.of) and folders.plan_in(runs.folder) is None
    assert (runs.folder / f"failed-{folders.PLAN}").exists()
    assert runs.do()[0] and folders.is_finished(runs.out, runs.of)  # the same again, fixed


def test_what_a_script_leaves_behind_ends_with_it(runs: Runs) -> None:
    left = "print('left', subprocess.Popen(['sleep', '60']).pid, flush=True)"
    assert runs.do(left)[0]
    output = (runs.folder / folders.OUTPUT).read_text()
    process = int(output.rpartition("left ")[2])
    busy.until(lambda: busy.has_ended(process), 20)


def test_a_lab_that_is_ended_ends_the_run_under_way(runs: Runs) -> None:
    """Ctrl-C leaves horovodrun time to end its ranks."""

    def ctrl_c(_: object) -> None:
        raise KeyboardInterrupt

    told = runs.out / "told"
    listen = (
        f"import signal\nsignal.signal(signal.SIGTERM, lambda *_: (open({str(told)!r}, 'w'), sys.exit(1)))"
    )
    Path(runs.of.script).write_text(f"{listen}{SCRIPT}\ntime.sleep(60)")
    Path(f"{runs.of.script}.log").write_text(json.dumps(records(runs.of)[0]) + "\n")
    with pytest.raises(KeyboardInterrupt):
        conduct._run(runs.out, runs.of, conduct._MadeHostsOnDemand(), ctrl_c)
    assert told.exists() and not folders.is_finished(runs.out, runs.of)


def test_the_commands_of_runs() -> None:
    of = replace(plan(4, "int8", 7, epochs=3), arguments=("--lr", "1"))
    script = ["train.py", "--epochs", "3", "--seed", "7"]
    launcher = [sys.executable, "-m", "horovod.runner", "-np", "4", "--compression", "int8"]
    assert conduct.words_of(of, None) == [*launcher, sys.executable, *script, "--lr", "1"]
    logged = conduct.words_of(replace(of, place="2 hosts at 1gbit"), Path("/log"))
    assert logged[7:9] == ["-H", hosts_of("2 hosts at 1gbit", 4)]
    assert logged[9:] == [sys.executable, *script, "--log-file", "/log", "--lr", "1"]
    assert conduct.words_of(replace(of, ranks=1), None) == [sys.executable, *script, "--lr", "1"]


def test_runs_find_this_copy_of_the_package_first(monkeypatch: pytest.MonkeyPatch) -> None:
    here = str(Path(conduct.__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    assert conduct.environment_of(plan())["PYTHONPATH"] == f"{here}{os.pathsep}/theirs"
    monkeypatch.delenv("PYTHONPATH")
    its = conduct.environment_of(plan())
    assert (its["PYTHONPATH"], its["PYTHONUNBUFFERED"]) == (here, "1")
    assert "HOROVOD_AUTOTUNE_LOG" not in its
    tuned = conduct.environment_of(plan(), Path("/runs/one"))
    assert tuned == {**its, "HOROVOD_AUTOTUNE_LOG": "/runs/one/tuning.json"}


class MadeUp:
    """Hosts that do not exist, with a record of requests."""

    asked: list[str]

    def __init__(self, count: int) -> None:
        self.names = [f"h{number}" for number in range(1, count + 1)]

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def ask(*words: Any) -> Any:
            MadeUp.asked.append(" ".join([name, str(len(self.names)), *map(str, words)]))
            return [*map(str, words)]

        return ask


def test_hosts_are_made_once_for_runs_that_need_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MadeUp, "asked", [], raising=False)
    monkeypatch.setattr(conduct, "MadeHosts", MadeUp)
    with conduct._MadeHostsOnDemand() as made:
        assert made.on_first_host("n1:2,n2:2", ["x"]) == ["x"] and MadeUp.asked == []
        assert made.on_first_host("2 hosts at 1gbit", ["x"]) == ["h1", "['x']"]
        made.on_first_host("2 hosts unlimited", ["x"])
        made.on_first_host("3 hosts at 1gbit", ["x"])
    assert MadeUp.asked == [
        *("up 2", "rate 2 1gbit", "command 2 h1 ['x']", "rate 2 none", "command 2 h1 ['x']", "down 2"),
        *("up 3", "rate 3 1gbit", "command 3 h1 ['x']", "down 3"),
    ]
    with conduct._MadeHostsOnDemand():
        pass  # without runs that need hosts


def options(folder: Path) -> list[str]:
    out = ["--out", str(folder / "out"), "--np", "1", "2", "--epochs", "1", "--seeds", "1"]
    return [*out, "--compression", "none", "bit8"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """python -m horovod.lab with these options; `conduct` does its runs."""
    before = {number: signal.getsignal(number) for number in (*STOPS, signal.SIGPIPE)}

    def call(*words: str, conduct: Callable[..., list[str]] = lambda *_: []) -> int:
        monkeypatch.setattr(main, "conduct", conduct)
        return main.main([*options(tmp_path), *words])

    yield call
    for number, handler in before.items():
        signal.signal(number, handler)


STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_the_lab_lists_what_is_done_and_what_is_missing(
    lab: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and all(line.startswith("missing  ") for line in lines)
    chosen = main.parse(options(tmp_path))
    for of, others in zip(chosen.plans, (0.0, 0.5), strict=False):
        written(chosen.out, of, records(of), Load(0.0, others, 0.0))
    assert lab("--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["done", "disturbed", "missing"]
    assert f"{folders.folder_of(chosen.out, chosen.plans[0]).name}: env OMP_NUM_THREADS=" in lines[0]
    assert shlex.join(conduct.words_of(chosen.plans[2], None)) in lines[2]


def test_a_report_of_finished_runs(
    lab: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    asked: list[Any] = []

    def written_report(*what: Any) -> list[Path]:
        asked.append(what)
        return [tmp_path / "out" / name for name in ("report.html", "plots.svg")]

    def conducted(out: Path, plans: list[Plan], _: Any, repeats: int) -> list[str]:
        assert not (out / "report.html").exists() and (len(plans), repeats) == (3, 2)
        return []

    monkeypatch.setattr(main, "write_report", written_report)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "report.html").touch()  # of an earlier experiment
    assert lab("--repeat-disturbed", "2", conduct=conducted) == 0
    shown = "".join(capsys.readouterr())
    assert f"{tmp_path}/out/report.html" in shown and "plots.svg" not in shown
    assert asked[0][0] == tmp_path / "out"
    assert asked[0][3].startswith(f"python -m horovod.lab --out {tmp_path}/out --np 1 2")


def test_what_keeps_a_report_away_is_said(
    lab: Callable[..., int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def said() -> str:
        return capsys.readouterr().err

    assert lab(conduct=lambda *_: ["np2-none", "serial"]) == 1
    assert "no report: 2 of 3 runs failed (np2-none, serial)" in said()
    assert lab() == 1  # without a run there is no log
    assert "no report: " in said()
    with folders.only_one_lab(tmp_path / "out"):
        assert lab() == 2
    assert str(errors.folder_in_use(path=str(tmp_path / "out"))) in said()
    monkeypatch.setattr(main, "why_unbuilt", lambda: "not built")
    assert lab() == 2 and "not built" in said()
    assert lab("--list") == 0


@pytest.mark.parametrize("number", STOPS)
def test_a_lab_that_is_stopped_says_how_to_go_on(
    lab: Callable[..., int], capsys: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    def stopped(*_: Any) -> list[str]:
        signal.raise_signal(number)
        pytest.fail("it went on")

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests themselves may run under nohup
    assert lab(conduct=stopped) == 128 + number
    said = capsys.readouterr().err
    assert (
        f"stopped by {number.name}; the same command goes on where it was: python -m horovod.lab --out"
        in said
    )


def test_under_nohup_the_lab_goes_on_without_its_terminal(lab: Callable[..., int]) -> None:
    def hung_up(*_: Any) -> list[str]:
        signal.raise_signal(signal.SIGHUP)
        return ["went on"]

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert lab(conduct=hung_up) == 1


def test_the_hosts_that_are_asked_what_they_are() -> None:
    on = [
        replace(plan(ranks), place=place) for ranks, place in ((2, "memory"), (2, "a:2,b:2"), (4, "a:2,b:2"))
    ]
    made = replace(plan(8), place="2 hosts at 1gbit")
    assert main._hosts_of([on[0], made]) == []
    assert main._hosts_of([on[0], on[1], on[2]]) == ["-np", "4", "-H", "a:2,b:2"]
